"""Formulas as MathML, which browsers draw without a script: the site needs no network."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Writes a formula within a line."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Writes a formula on lines of its own, which scrolls on narrow screens."""
    self.body.append(
        f'<div style="overflow: auto hidden; padding: 0.5em 0">{convert(node.astext(), display="block")}</div>'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer('mathml', (visit_math, None), (visit_math_block, None))
    return dict(parallel_read_safe=True)
