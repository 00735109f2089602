"""Writes the generated parts of README.md: the table of operators, and the names that are not implemented.

    python tables.py

In an environment with the mmcv that the README names. `tests/test_tables.py` compares the file with what this writes.
"""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

README = Path(__file__).resolve().parent / 'README.md'
sys.path[:0] = [str(README.parent), str(README.parent / 'tests')]

from mmcv_ops import coverage, ext  # noqa: E402


def public_names(module: str) -> list[str]:
    """Returns the classes and functions that `mmcv.ops` takes from one of its modules."""
    ops = import_module('mmcv.ops')
    loaded = sys.modules[f'mmcv.ops.{module}']
    return sorted(name for name in vars(ops) if not inspect.ismodule(getattr(ops, name)) and name in vars(loaded)
                  and not name.startswith('_') and owner(getattr(ops, name)) == loaded.__name__)  # fmt: skip


def owner(value) -> str:
    return getattr(getattr(value, '__self__', value), '__module__', '')


def compared(names: list[str]) -> str:
    """Returns with what the tests compare an operator: a case of tests/mmcv_cases.py is one of compiled values."""
    from mmcv_cases import CASES

    cases = {name.partition('-')[0].replace('_', '') for name in CASES}
    ends = '_(forward|backward|conv_forward|forward_.*|backward_.*)$'
    stems = {re.sub(ends, '', name).replace('_', '') for name in names}
    return 'compiled' if stems & cases or 'softnms' in stems else 'loops or another library'


def operators() -> str:
    """Returns a row per module of `mmcv.ops` of which something is implemented."""
    rows = ['| module of `mmcv.ops` | classes and functions | backward | tests compare with |', '|---|---|---|---|']
    left = coverage.missing()
    for module, names in coverage.names_by_module().items():
        here = [name for name in names if name in ext.__all__]
        if here and module not in left and module != 'info':
            backward = 'yes' if any('backward' in name for name in here) else differentiable(module)
            public = ', '.join(f'`{name}`' for name in public_names(module))
            rows.append(f'| {module} | {public} | {backward} | {compared(here)} |')
    return '\n'.join(rows)


def differentiable(module: str) -> str:
    """Returns what operators without a backward function have: mmcv gives most of them none, either."""
    return {'diff_iou_rotated': 'yes', 'convex_iou': '`convex_giou` returns it'}.get(module, 'none')


def not_implemented() -> str:
    """Returns a sentence with the modules and the number of names."""
    left = coverage.missing()
    total, here = sum(map(len, coverage.names_by_module().values())), sum(map(len, left.values()))
    modules = ', '.join(f'`{module}`' for module in left)
    return (
        f'{total - here} of the {total} names that `mmcv.ops` of onedl-mmcv 2.3.6 takes from its compiled module are '
        f'implemented; mmcv-lite asks for one less, `line_nms_forward`. '
        f'{here} names of these modules are not: {modules}.'
    )


def written(text: str) -> str:
    """Returns README.md with its generated parts."""
    for name, content in (('operators', operators()), ('missing', not_implemented())):
        pattern = f'(<!-- {name}: written by tables.py -->\n).*?(<!-- end of {name} -->)'
        text, count = re.subn(pattern, lambda m, c=content: f'{m[1]}\n{c}\n\n{m[2]}', text, flags=re.DOTALL)
        assert count == 1, name
    return text


if __name__ == '__main__':
    README.write_text(written(README.read_text(encoding='utf-8')), encoding='utf-8')
