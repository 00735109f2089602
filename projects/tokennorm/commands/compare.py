"""`tokennorm.compare`: compares two training runs on one page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tokennorm.base.files import check_output_file
from tokennorm.base.messages import UserError, in_python
from tokennorm.commands.checks import optional_path, path_of
from tokennorm.commands.result import Result


@dataclass(frozen=True)
class Compared:
    """AP of two runs, and its difference, from 0 to 1."""

    first: float
    second: float
    difference: float  #: second - first
    low: float | None  #: lower end of the 95% interval; None where it was not estimated
    high: float | None  #: upper end


@dataclass(frozen=True)
class ComparisonResult(Result):
    """Result of `tokennorm.compare`."""

    page: Path  #: the HTML file
    names: Sequence[str]  #: of the two runs
    weights: Sequence[str]  #: file names of the two checkpoints
    same_data: bool  #: otherwise the difference is not one of the detectors
    results: Mapping[str, Compared]  #: by 'bbox' and 'segm'


@in_python
def compare(first: str | Path, second: str | Path, *, out: str | Path | None = None) -> ComparisonResult:
    """Compares two training runs on one page.

    Args:
        first: Work directory of the baseline, with a report of training or of `tokennorm.test(..., report=True)`.
        second: Work directory of the run to compare with it.
        out: Folder for compare.html, or the page itself, FILE.html; None is the working directory, where the page is
            compare-2.html if there is one already.
    """
    first, second, out = path_of('first', first), path_of('second', second), optional_path('--out', out)
    names = (Path(f'compare-{i}.html' if i > 1 else 'compare.html') for i in count(1))
    if out is None:
        out = next(path for path in names if not path.exists())
    elif out.suffix != '.html' or out.is_dir():
        out = out / 'compare.html'
    check_output_file(out)
    if out.name == 'report.html' and out.with_suffix('.json').is_file():
        raise UserError(f'{out} is the report of a run; give --out another name')
    from tokennorm.report.comparison import compare as write_comparison
    from tokennorm.report.comparison import names_of, read_run, same_data
    from tokennorm.report.page import format_difference

    runs = read_run(first), read_run(second)
    name, other = names_of(*runs)
    results: dict[str, Compared] = {}
    lines: list[str] = []
    for iou_type, (low, high) in write_comparison(*runs, out).items():
        old, new = (float(run.numbers['results'][iou_type]['summary']['mAP']) for run in runs)
        results[iou_type] = Compared(old, new, new - old, low, high)
        if min(old, new) < 0:  # as COCO has it
            lines.append(f'{iou_type} AP is not defined: there are no annotated objects')
            continue
        points = format_difference(old, new)
        which = 'equal to' if points == '+0.0' else 'higher than' if points[0] == '+' else 'lower than'
        interval = '' if low is None else f', 95% interval {100 * low:+.1f} to {100 * high:+.1f}'
        text = f'{iou_type} AP of {other}: {100 * new:.1f}, {which} {100 * old:.1f} of {name}'
        lines.append(f'{text} ({points}{interval})')
    if not (is_same := same_data(*runs)):
        lines.insert(
            0,
            'warning: the two are evaluated on different data, so that a difference is not that of the detectors: '
            'evaluate both again with `tokennorm test`',
        )
    lines += [f'Weights: {other} {runs[1].weights}, {name} {runs[0].weights}', f'The comparison is in {out}']
    return ComparisonResult(out, [name, other], [run.weights for run in runs], is_same, results, lines=lines)
