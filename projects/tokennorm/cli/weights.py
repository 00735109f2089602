"""Lists the published detectors that can be used by name: config, COCO AP as their authors state, and size.

`tokennorm predict NAME IMAGES` and `Detector('NAME')` detect COCO's 80 classes with one.

examples:
  tokennorm weights
"""

from dataclasses import asdict

from tokennorm.base.console import say, table
from tokennorm.base.published import PUBLISHED
from tokennorm.cli.command import Parser, add_json, command, print_json


def build_parser() -> Parser:
    parser = Parser(__doc__)
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    if build_parser().parse_args(argv).json:
        print_json([asdict(detector) for detector in PUBLISHED.values()])
    rows: list[tuple[str, ...]] = [('name', 'config', 'schedule', 'box AP', 'mask AP', 'MB')]
    for detector in PUBLISHED.values():
        values = (detector.schedule, detector.box_ap, detector.mask_ap or '-', detector.size)
        rows.append((detector.name, detector.config, *map(str, values)))
    say(table(rows))
    say('\nAP on COCO val2017 as stated by the authors of mmdet, who trained these detectors; not measured here.')
    say('License: Apache-2.0, that of mmdet. --json has the URLs, which end with the first digits of the SHA-256.')
