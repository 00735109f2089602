"""A comparison of norms and stems that anyone can repeat: plans, training, scores and the tables of docs/study."""
