"""Lists the published detectors that can be used by name: config, COCO AP as their authors state, file and license.

`tokennorm predict NAME IMAGES` and `Detector('NAME')` detect COCO's 80 classes with one.

examples:
  tokennorm weights
"""

from tokennorm.cli.command import Parser, command
from tokennorm.cli.configs import aligned
from tokennorm.published import PUBLISHED

HEADER = ('name', 'config', 'box AP', 'mask AP', 'MB', 'URL')


@command
def main(argv: list[str]) -> None:
    Parser(__doc__).parse_args(argv)
    rows = []
    for one in PUBLISHED.values():
        mask_ap = '-' if one.mask_ap is None else f'{one.mask_ap:.1f}'
        rows.append((one.name, one.config, f'{one.box_ap:.1f}', mask_ap, str(one.size), one.url))
    print(aligned([HEADER, *rows]))
    print('\nAP on COCO val2017 as stated by the authors of mmdet, who trained these detectors; not measured here.')
    print('License: Apache-2.0, that of mmdet. File names end with the first digits of their SHA-256.')
