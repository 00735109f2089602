"""Writes docs/reference/rules.md from the rules of the package: `python tools/write_rules.py`"""

from pathlib import Path

from tokennorm.cli.rules import page
from tokennorm.findings import RULES
from tokennorm.findings.data_rules import DATA_RULES
from tokennorm.findings.training_rules import TRAINING_RULES

PATH = Path(__file__).resolve().parents[1] / 'docs' / 'reference' / 'rules.md'
_HEAD = """# Rules

What TokenNorm thinks of your data, configs and checkpoints is a finding, made by one of these rules. Each printed line
ends with the code of its rule; `tokennorm rules CODE` prints its page.

- An **error** stops the command, a **warning** does not. A **note** says what was read in another way than it is
  written.
- `--allow CODE,CODE` overrules rules: an error becomes a warning, and a warning or a note is silent. In Python it is
  `allow=['CODE']`. The config that a run writes keeps it.
- `--strict` makes warnings errors, for continuous integration.
- `--json` prints code, severity, place, text and everything that is affected.

<!-- written by tools/write_rules.py -->
"""


def rules_page() -> str:
    """Returns the text of the page."""
    parts = [_HEAD]
    for title, rules in (('Data', DATA_RULES), ('Configs and checkpoints', TRAINING_RULES)):
        parts.append(f'## {title}\n')
        rows = [f'| [{one.code}](#{one.code}) | {one.severity} | {one.summary} |' for one in rules]
        parts.append('\n'.join(['| code | severity | summary |', '|---|---|---|', *rows, '']))
    parts += [f'### {rule.code}\n\n{page(rule)}\n' for rule in RULES.values()]
    return '\n'.join(parts)


if __name__ == '__main__':
    PATH.write_text(rules_page(), encoding='utf-8')
    print(f'{PATH}: {len(RULES)} rules')
