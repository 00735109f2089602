"""Compares two training runs on one page.

Each run is a work directory with a report, as training and `tokennorm test --report` leave it. The page shows the
difference in AP with an interval, AP per class, types of errors, curves, and the changes in the config.

examples:
  tokennorm compare work_dirs/baseline work_dirs/dtn --out compare.html
"""

from pathlib import Path

from tokennorm.cli.command import Parser, command
from tokennorm.files import check_output_file


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('first', type=Path, help='work directory of the baseline')
    parser.add_argument('second', type=Path, help='work directory of the run to compare with it')
    parser.add_argument('--out', type=Path, default='compare.html', help='the page; default: compare.html')
    args = parser.parse_args(argv)
    check_output_file(args.out)
    from tokennorm.report.compare import compare, read_run

    differences = compare(read_run(args.first), read_run(args.second), args.out)
    for iou_type, result in differences.items():
        interval = '' if result.low is None else f' (95% interval {100 * result.low:+.1f} to {100 * result.high:+.1f})'
        print(f'{iou_type} AP: {100 * result.value:+.1f} points{interval}')
    print(f'The comparison is in {args.out}')
