"""Findings: what the program thinks of the user's data, config and checkpoints, each made by a rule with a code.

    with judging(Findings(allow=['bbox-as-corners'])) as found:
        ...                # anywhere below: ZERO_INSTANCE_CATEGORY.report('train', items=['bus'])
    found.stop()           # raises `Refusal`, a `UserError`, if there are errors

A rule is declared where it is judged: by the decorator `@rule(...)` above the function that looks at data, a config or
what was built from it, or as an object `NAME = Rule(...)` in the module that finds it on the way, such as a reader.
What an argument of a Python call gets wrong is not a finding but an exception.
"""

from tokennorm.findings.collecting import (
    JUDGEMENTS,
    RULES,
    Finding,
    Findings,
    Refusal,
    Rule,
    collected,
    current,
    is_judged,
    judging,
    list_items,
    rule,
    rules_about,
)

__all__ = [
    'JUDGEMENTS',
    'RULES',
    'Finding',
    'Findings',
    'Refusal',
    'Rule',
    'collected',
    'current',
    'is_judged',
    'judging',
    'list_items',
    'rule',
    'rules_about',
]
