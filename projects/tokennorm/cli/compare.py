"""Compares two training runs on one page.

Each run is a work directory with a report, as training and `tokennorm test --report` leave it. The page shows the
difference in AP with an interval, AP per class, types of errors, curves, and the changes in the config.

examples:
  tokennorm compare work_dirs/baseline work_dirs/dtn --out compare.html
"""

from itertools import count
from pathlib import Path

from tokennorm.cli.command import Parser, command
from tokennorm.console import say
from tokennorm.files import check_output_file


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('first', type=Path, help='work directory of the baseline')
    parser.add_argument('second', type=Path, help='work directory of the run to compare with it')
    parser.add_argument('--out', type=Path, help='the page; default: compare.html, or compare-2.html if that exists')
    args = parser.parse_args(argv)
    names = (Path(f'compare-{i}.html' if i > 1 else 'compare.html') for i in count(1))
    out = args.out or next(path for path in names if not path.exists())
    check_output_file(out)
    from tokennorm.report.compare import compare, names_of, read_run

    runs = read_run(args.first), read_run(args.second)
    name, other = names_of(*runs)
    for iou_type, result in compare(*runs, out).items():
        first, second = (100 * run.numbers['results'][iou_type]['summary']['mAP'] for run in runs)
        which = 'equal to' if result.value == 0 else 'higher than' if result.value > 0 else 'lower than'
        interval = '' if result.low is None else f', 95% interval {100 * result.low:+.1f} to {100 * result.high:+.1f}'
        say(f'{iou_type} AP of {other}: {second:.1f}, {which} {first:.1f} of {name} ({second - first:+.1f}{interval})')
    if len({run.numbers['data']['fingerprint'] for run in runs}) > 1:
        say('warning: the two are evaluated on different data, so that this is not a difference of the detectors')
    say(f'Weights: {other} {runs[1].weights}, {name} {runs[0].weights}')
    say(f'The comparison is in {out}')
