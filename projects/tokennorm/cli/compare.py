"""Compares two training runs on one page.

Each run is a work directory with a report, as training and `tokennorm test --report` leave it. The page shows the
difference in AP with an interval, AP per class, types of errors, curves, and the changes in the config.

examples:
  tokennorm compare work_dirs/baseline work_dirs/dtn --out comparison
"""

from pathlib import Path

from tokennorm.cli.command import Parser, add_json, call, command, show
from tokennorm.commands.compare import compare


def build_parser() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument('first', type=Path, help='work directory of the baseline')
    parser.add_argument('second', type=Path, help='work directory of the run to compare with it')
    out = 'folder for compare.html, or the page, FILE.html; default: the working directory'
    parser.add_argument('--out', type=Path, help=out)
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    show(call(compare, args), args)
