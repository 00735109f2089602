"""Checks a dataset in COCO, YOLO or Pascal VOC format before training, and draws its annotations; or checks a config.

examples:
  tokennorm check DIR
  tokennorm check DIR --allow bbox-as-corners,rotated-box    # `tokennorm rules` lists the codes
  tokennorm check mmdet::retinanet/retinanet_r50_fpn_1x_coco    # the rules about recipes, without training
"""

import argparse
from pathlib import Path

from tokennorm.cli.arguments import add_training_options
from tokennorm.cli.command import Parser, add_json, command, import_openmmlab, positive_integer, print_json
from tokennorm.config.paths import config as config_path
from tokennorm.console import say
from tokennorm.findings import Findings, judging
from tokennorm.plan.options import check_data


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('data', help='folder, or the data.yaml of a YOLO dataset; or a config')
    out = Path('work_dirs/check_dataset')
    parser.add_argument('--out', type=Path, default=out, help='folder for the contact sheets; default: %(default)s')
    images = 'images drawn per split; default: %(default)s'
    parser.add_argument('--num-images', type=positive_integer, default=24, metavar='N', help=images)
    parser.add_argument('--masks', action='store_true', help='also report what would break training on masks')
    add_training_options(parser, ('allow', 'strict'))
    add_json(parser)
    args = parser.parse_args(argv)
    if is_config(args.data):
        return check_config(args)
    check_data(args.data)

    import_openmmlab()
    import cv2

    from tokennorm.datasets.coco.inspection import inspect_splits
    from tokennorm.datasets.drawing import contact_sheet
    from tokennorm.files import make_output_dir
    from tokennorm.plan.data import find_detection_data

    with judging(Findings(args.allow, args.strict)) as found:
        splits = find_detection_data(args.data)
        for split in splits.values():
            say(f'{split.name}: {split.source}, images in {split.image_dir}')
        inspection = inspect_splits(splits)
    say('\n'.join(inspection.lines(found, args.masks)))
    if args.json:
        counts = {
            split.name: dict(
                source=split.source, **{key: len(split.content[key]) for key in ('images', 'annotations', 'categories')}
            )
            for split in splits.values()
        }
        errors, of_masks = (
            found.of('error', masks=False),
            [one for one in found.of('error') if one.rule.about == 'masks'],
        )
        texts = dict(errors=errors, warnings=found.of('warning'), mask_errors=of_masks)
        lines = {key: [str(one) for one in some] for key, some in texts.items()}
        shown = [one.as_dict() for one in found if args.masks or one.rule.about != 'masks']
        print_json(dict(splits=counts, findings=shown, **lines))
    if count := len(found.of('error', args.masks)):
        problems = f'{count} problems' if count > 1 else '1 problem'
        raise SystemExit(f'error: {problems} that would break training or evaluation, listed above')
    make_output_dir(args.out)
    for split in splits.values():
        sheet = args.out / f'{split.name}.jpg'
        cv2.imwrite(str(sheet), contact_sheet(split, args.num_images))
        say(f'{sheet}: images of {split.name} with their annotations')


def is_config(name: str) -> bool:
    """Returns whether a name is that of a config: a file of Python, or a name without a folder of data."""
    path = Path(name)
    if path.exists() or path.suffix in ('.yaml', '.yml', '.json'):
        return path.suffix == '.py'
    try:
        return bool(config_path(name))
    except FileNotFoundError:
        return '::' in name or path.suffix == '.py'


def check_config(args: argparse.Namespace) -> None:
    """Applies the rules about recipes to a config."""
    import_openmmlab()
    from tokennorm.engine.lint import lint

    found, absent = lint(args.data, args.allow, args.strict)
    if absent:
        say(f'note: the data of {", ".join(absent)} is not on this machine; its rules are left out')
    say(found.text() or 'No problems found.')
    if args.json:
        print_json(dict(findings=[one.as_dict() for one in found], without_data=absent))
    if count := len(found.of('error')):
        raise SystemExit(f'error: {f"{count} problems" if count > 1 else "1 problem"} of the config, listed above')
