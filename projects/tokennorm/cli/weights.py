"""Lists the published detectors that can be used by name: config, COCO AP as their authors state, file and license.

`tokennorm predict NAME IMAGES` and `Detector('NAME')` detect COCO's 80 classes with one.

examples:
  tokennorm weights
"""

from dataclasses import asdict

from tokennorm.base.console import say
from tokennorm.base.published import PUBLISHED
from tokennorm.cli.command import Parser, add_json, command, print_json
from tokennorm.cli.configs import aligned


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    add_json(parser)
    if parser.parse_args(argv).json:
        print_json([asdict(detector) for detector in PUBLISHED.values()])
    rows = [('name', 'config', 'schedule', 'box AP', 'mask AP', 'MB', 'URL')]
    for detector in PUBLISHED.values():
        values = (detector.schedule, detector.box_ap, detector.mask_ap or '-', detector.size, detector.url)
        rows.append((detector.name, detector.config, *map(str, values)))
    say(aligned(rows))
    say('\nAP on COCO val2017 as stated by the authors of mmdet, who trained these detectors; not measured here.')
    say('License: Apache-2.0, that of mmdet. File names end with the first digits of their SHA-256.')
