"""Compares two training runs on one page.

Each run is a work directory with a report, as training and `tokennorm test --report` leave it. The page shows the
difference in AP with an interval, AP per class, types of errors, curves, and the changes in the config.

examples:
  tokennorm compare work_dirs/baseline work_dirs/dtn --out compare.html
"""

from pathlib import Path

from tokennorm.cli.command import Parser, add_json, arguments_of, command, show
from tokennorm.commands.compare import compare


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('first', type=Path, help='work directory of the baseline')
    parser.add_argument('second', type=Path, help='work directory of the run to compare with it')
    parser.add_argument('--out', type=Path, help='the page; default: compare.html, or compare-2.html if that exists')
    add_json(parser)
    args = parser.parse_args(argv)
    show(compare(**arguments_of(compare, args)), args)
