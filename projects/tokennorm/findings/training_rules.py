"""Rules about configs and checkpoints: what would train another model than was meant, or nothing."""

from tokennorm.findings.rule import Rule

TRAINING_RULES: tuple[Rule, ...] = ()
