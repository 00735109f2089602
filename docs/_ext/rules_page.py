"""Adds the rules of the package to the page `reference/rules`: tables of all, and a section per rule."""

from sphinx.application import Sphinx

from tokennorm.cli.rules import GROUPS, page
from tokennorm.findings import rules_about


def rules_text() -> str:
    """Returns the Markdown that follows the page's introduction."""
    groups = {title: rules_about(*topics) for title, topics in GROUPS.items()}
    parts = []
    for title, rules in groups.items():
        rows = [f'| [{one.code}](#{one.code}) | {one.severity} | {one.summary} |' for one in rules]
        parts.append('\n'.join([f'## {title}\n', '| code | severity | summary |', '|---|---|---|', *rows, '']))
    parts += [f'### {rule.code}\n\n{page(rule)}\n' for rules in groups.values() for rule in rules]
    return '\n'.join(parts)


def _add_rules(_: Sphinx, name: str, source: list[str]) -> None:
    if name == 'reference/rules':
        source[0] += f'\n{rules_text()}'


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect('source-read', _add_rules)
    return dict(parallel_read_safe=True)
