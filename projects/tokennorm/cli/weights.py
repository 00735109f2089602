"""Lists the published detectors that can be used by name: config, COCO AP as their authors state, file and license.

`tokennorm predict NAME IMAGES` and `Detector('NAME')` detect COCO's 80 classes with one.

examples:
  tokennorm weights
"""

from tokennorm.cli.command import command, make_parser
from tokennorm.cli.configs import aligned
from tokennorm.published import PUBLISHED

HEADER = ('name', 'config', 'box AP', 'mask AP', 'MB', 'SHA-256', 'license', 'URL')


@command
def main(argv: list[str]) -> None:
    make_parser(__doc__).parse_args(argv)
    rows = [
        (
            each.name,
            each.config,
            f'{each.box_ap:.1f}',
            '-' if each.mask_ap is None else f'{each.mask_ap:.1f}',
            str(each.size),
            f'{each.hash_prefix}...',
            each.license,
            each.url,
        )
        for each in PUBLISHED.values()
    ]
    print(aligned([HEADER, *rows]))
    print('\nAP on COCO val2017 as stated by the authors of mmdet, who trained these detectors; not measured here.')
