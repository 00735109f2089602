"""Self-supervised pretraining of ViT by DINO (DTN paper, Table 7a), and its evaluation."""
