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


def relative(module: str) -> str:
    """Returns the lowest and the highest time of a module's steps, relative to compiled."""
    found = [step['ratio'] for step in benchmarks()['steps'] if module in step['modules']]
    numbers = sorted(ratio for ratio in found if isinstance(ratio, float))
    if not numbers:
        return found[0] if found else 'not measured'
    return f'{numbers[0]:.2f}' if len(numbers) == 1 else f'{numbers[0]:.2f} to {numbers[-1]:.2f}'


def operators() -> str:
    """Returns a row per module of `mmcv.ops` of which something is implemented."""
    from test_devices import cases as on_devices

    titles = ['module of `mmcv.ops`', 'classes and functions', 'forward', 'backward', 'dtypes', 'CPU', 'CUDA']
    titles.append('time against compiled')
    rows = [titles, ['---'] * len(titles)]
    left = coverage.missing()
    for module, names in coverage.names_by_module().items():
        here = [name for name in names if name in ext.__all__]
        if here and module not in left and module != 'info':
            public = ', '.join(f'`{name}`' for name in public_names(module))
            forward = 'equals compiled' if cases(here) else 'equals loops'
            backward = 'yes' if any('backward' in name for name in here) else differentiable(module)
            cuda = 'device only' if cases(here) or set(here) & set(on_devices()) else 'not run'
            rows.append([module, public, forward, backward, dtypes(here), 'yes', cuda, relative(module)])
    return '\n'.join(f'| {" | ".join(row)} |' for row in rows)


def times() -> str:
    """Returns where the steps of benchmark.json were measured, and a row for each."""
    found = benchmarks()
    machine = ', '.join(f'{name} {value}' for name, value in found['machine'].items() if name != 'threads')
    rows = [
        f'Measured with {machine}.',
        '',
        '| step | ms | time relative to compiled, lower is better |',
        '|---|---|---|',
    ]
    return '\n'.join(rows + [f'| {step["step"]} | {step["ms"]} | {step["ratio"]} |' for step in found['steps']])


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
