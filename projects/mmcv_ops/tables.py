"""Writes the generated parts of README.md: the tables of operators and times, and the names that are not implemented.

The times are those of benchmark.json, which `python benchmark.py --write` measures.

    python tables.py

In an environment with the mmcv that the README names. `tests/test_tables.py` compares the file with what this writes.
"""

import inspect
import json
import re
import sys
from importlib import import_module
from pathlib import Path

README = Path(__file__).resolve().parent / 'README.md'
sys.path[:0] = [str(README.parent), str(README.parent / 'tests')]

import torch  # noqa: E402
from mmcv_ops import coverage, ext  # noqa: E402

SIZES = ('200', '1,000', '5,000')  # of boxes
DTYPES = (torch.float64, torch.float16, torch.bfloat16)


def public_names(module: str) -> list[str]:
    """Returns the classes and functions that `mmcv.ops` takes from one of its modules."""
    ops = import_module('mmcv.ops')
    loaded = sys.modules[f'mmcv.ops.{module}']
    return sorted(name for name in vars(ops) if not inspect.ismodule(getattr(ops, name)) and name in vars(loaded)
                  and not name.startswith('_') and owner(getattr(ops, name)) == loaded.__name__)  # fmt: skip


def owner(value) -> str:
    return getattr(getattr(value, '__self__', value), '__module__', '')


def cases(names: list[str]) -> list[str]:
    """Returns the cases of tests/mmcv_cases.py for names of the compiled module: its values are kept."""
    from mmcv_cases import CASES

    ends = '_(forward|backward|conv_forward|forward_.*|backward_.*)$'
    stems = {re.sub(ends, '', name).replace('_', '') for name in names}
    return [case for case in CASES if case.partition('-')[0].replace('_', '') in stems]


def dtypes(names: list[str]) -> str:
    """Returns the dtypes in which the first case of each name runs, with finite values."""
    import mmcv_cases
    from conftest import operators

    firsts = {name.partition('-')[0]: name for name in reversed(cases(names))}
    if not firsts:
        return 'float32; others not measured'
    runs, random = ['float32'], mmcv_cases.random
    for dtype in DTYPES:
        mmcv_cases.random = lambda *shape, grad=True, d=dtype, **how: (
            random(*shape, grad=False, **how).to(d).requires_grad_(grad)
        )
        try:
            with operators(ext) as ops:
                outputs = [value for name in firsts.values() for value in mmcv_cases.CASES[name](ops).values()]
            assert all(value.isfinite().all() for value in outputs)
            runs.append(str(dtype).partition('.')[2])
        except (RuntimeError, TypeError, ValueError, AssertionError):
            continue
        finally:
            mmcv_cases.random = random
    return ', '.join(runs)


def benchmarks() -> dict:
    return json.loads(README.with_name('benchmark.json').read_text(encoding='utf-8'))


def operators() -> str:
    """Returns a row per group of modules of `mmcv.ops` with equal cells, of which something is implemented."""
    from test_devices import cases as on_devices

    groups: dict[tuple[str, ...], list[str]] = {}
    left = coverage.missing()
    for module, names in coverage.names_by_module().items():
        here = [name for name in names if name in ext.__all__]
        if here and module not in left and module != 'info':
            compared = 'compiled' if cases(here) else 'loops'
            backward = 'yes' if any('backward' in name for name in here) else differentiable(module)
            cuda = 'device only' if cases(here) or set(here) & set(on_devices()) else 'not run'
            cells = compared, backward, dtypes(here), cuda
            groups.setdefault(cells, []).extend(f'`{name}`' for name in public_names(module))
    head = '| classes and functions | equals | backward | dtypes | CUDA |\n| --- | --- | --- | --- | --- |\n'
    return head + '\n'.join(f'| {" | ".join((", ".join(names), *cells))} |' for cells, names in groups.items())


def times() -> str:
    """Returns where the steps of benchmark.json were measured, and their times relative to compiled, by size."""
    found = benchmarks()
    machine = ', '.join(f'{name} {value}' for name, value in found['machine'].items() if name != 'threads')
    single, rows = [], {}
    for step in found['steps']:
        if not isinstance(step['ratio'], float):
            continue  # no compiled form
        name, _, size = step['step'].rpartition(', ')
        size = size.partition(' ')[0]
        if size in SIZES:
            rows.setdefault(name, dict.fromkeys(SIZES, ''))[size] = str(step['ratio'])
        else:
            single.append(f'{step["step"]} {step["ratio"]}')
    head = f'| step | {" | ".join(f"{size} boxes" for size in SIZES)} |\n|---|{"---|" * len(SIZES)}\n'
    table = '\n'.join(f'| {" | ".join((name, *cells.values()))} |' for name, cells in rows.items())
    return f'Measured with {machine}: {"; ".join(single)}.\n\n{head}{table}'


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
    for name, content in (('operators', operators()), ('missing', not_implemented()), ('times', times())):
        pattern = f'(<!-- {name}: written by tables.py -->\n).*?(<!-- end of {name} -->)'
        text, count = re.subn(pattern, lambda m, c=content: f'{m[1]}\n{c}\n\n{m[2]}', text, flags=re.DOTALL)
        assert count == 1, name
    return text


if __name__ == '__main__':
    README.write_text(written(README.read_text(encoding='utf-8')), encoding='utf-8')
