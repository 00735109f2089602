"""Checks a dataset in COCO, YOLO or Pascal VOC format before training, and draws its annotations.

examples:
  tokennorm check DIR
"""

from pathlib import Path

from tokennorm.cli.command import Parser, add_json, command, import_openmmlab, positive_integer, print_json
from tokennorm.console import say
from tokennorm.engine.options import check_data


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('data', help='folder, or the data.yaml of a YOLO dataset')
    out = Path('work_dirs/check_dataset')
    parser.add_argument('--out', type=Path, default=out, help='folder for the contact sheets; default: %(default)s')
    images = 'images drawn per split; default: %(default)s'
    parser.add_argument('--num-images', type=positive_integer, default=24, metavar='N', help=images)
    parser.add_argument('--masks', action='store_true', help='also report what would break training on masks')
    add_json(parser)
    args = parser.parse_args(argv)
    check_data(args.data)

    import_openmmlab()
    import cv2

    from tokennorm.datasets.coco.inspection import inspect_splits
    from tokennorm.datasets.drawing import contact_sheet
    from tokennorm.engine.data import find_detection_data
    from tokennorm.files import make_output_dir

    splits = find_detection_data(args.data)
    for split in splits.values():
        say(f'{split.name}: {split.source}, images in {split.image_dir}')
    found = inspect_splits(splits)
    say(f'\n{found.text(args.masks)}\n')
    if args.json:
        counts = {
            split.name: dict(
                source=split.source, **{key: len(split.content[key]) for key in ('images', 'annotations', 'categories')}
            )
            for split in splits.values()
        }
        print_json(dict(splits=counts, errors=found.errors, warnings=found.warnings, mask_errors=found.mask_errors))
    if args.masks:
        found.errors += found.mask_errors
    if found.errors:
        count = f'{len(found.errors)} problems' if len(found.errors) > 1 else '1 problem'
        raise SystemExit(f'error: {count} that would break training or evaluation, listed above')
    make_output_dir(args.out)
    for split in splits.values():
        sheet = args.out / f'{split.name}.jpg'
        cv2.imwrite(str(sheet), contact_sheet(split, args.num_images))
        say(f'{sheet}: images of {split.name} with their annotations')
