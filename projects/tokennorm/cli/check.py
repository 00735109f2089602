"""Checks a dataset before training, and draws its annotations; or checks a config.

examples:
  tokennorm check DIR
  tokennorm check DIR --allow bbox-as-corners,rotated-box    # `tokennorm rules` lists the codes
  tokennorm check mmdet::retinanet/retinanet_r50_fpn_1x_coco    # the rules about recipes, without training
"""

from pathlib import Path

from tokennorm.base.messages import counted
from tokennorm.cli.arguments import add_training_options, add_work_dir
from tokennorm.cli.command import Parser, add_json, call, command, show
from tokennorm.commands.check import check


def build_parser() -> Parser:
    parser = Parser(__doc__)
    formats = 'COCO, YOLO, Pascal VOC or CVAT, as Label Studio, Roboflow and FiftyOne export them, too'
    data = f'folder, or data.yaml of YOLO: {formats} (labelformat and datumaro convert others); or a config'
    parser.add_argument('data', help=data)
    out = Path('work_dirs/check_dataset')
    parser.add_argument('--out', type=Path, default=out, help='folder for the contact sheets; default: %(default)s')
    add_work_dir(parser)
    images = 'images drawn per split; default: %(default)s'
    parser.add_argument('--num-images', type=int, default=24, metavar='N', help=images)
    parser.add_argument('--masks', action='store_true', help='also report what would break training on masks')
    add_training_options(parser, ('allow', 'strict'))
    add_json(parser)
    return parser


@command
def main(argv: list[str]) -> None:
    args = build_parser().parse_args(argv)
    result = call(check, args)
    show(result, args)
    if not result.ok:
        count = sum(one.severity == 'error' for one in result.findings)
        which = 'that would break training or evaluation' if result.splits else 'of the config'
        raise SystemExit(f'error: {counted(count, "problem")} {which}, listed above')
