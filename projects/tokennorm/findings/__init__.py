"""Findings: what the program thinks of the user's data, config and checkpoints, each made by a rule with a code.

    with judging(Findings(allow=['bbox-as-corners'])) as found:
        ...                # anywhere below: reports('zero-instance-category', 'train', items=['bus'])
    found.stop()           # raises `Refusal`, a `UserError`, if there are errors

The rows are in `data_rules.py` and `training_rules.py`; docs/reference/rules.md is made from them. What an argument of
a Python call gets wrong is not a finding but an exception.
"""

from tokennorm.findings.collecting import (
    RULES,
    Finding,
    Findings,
    Refusal,
    collected,
    current,
    judging,
    list_items,
    refuse,
    reports,
)
from tokennorm.findings.rule import Rule

__all__ = [
    'RULES',
    'Finding',
    'Findings',
    'Refusal',
    'Rule',
    'collected',
    'current',
    'judging',
    'list_items',
    'refuse',
    'reports',
]
