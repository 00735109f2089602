"""Rules about recipes: each looks at what was built, and its row is in `findings/training_rules.py`."""

from tokennorm.engine.rules import data, model, training
from tokennorm.engine.rules.built import RULES, Built, judge, verify

__all__ = ['RULES', 'Built', 'data', 'judge', 'model', 'training', 'verify']
