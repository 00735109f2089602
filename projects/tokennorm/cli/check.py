"""Checks a dataset in COCO, YOLO or Pascal VOC format before training, and draws its annotations.

examples:
  tokennorm check DIR
  tokennorm check DIR --config retinanet_pvt-t_fpn_1x_coco --image-size 512
"""

from pathlib import Path

from tokennorm.cli.command import Parser, command, positive_integer
from tokennorm.engine.options import check_config, check_data, check_integer


@command
def main(argv: list[str]) -> None:
    parser = Parser(__doc__)
    parser.add_argument('data', help='folder, or the data.yaml of a YOLO dataset')
    parser.add_argument(
        '--out',
        type=Path,
        default=Path('work_dirs/check_dataset'),
        help='folder for the contact sheets; default: work_dirs/check_dataset',
    )
    parser.add_argument(
        '--num-images', type=positive_integer, default=24, metavar='N', help='images drawn per split; default: 24'
    )
    parser.add_argument('--config', help='compare the object sizes with the anchors of this detector config')
    parser.add_argument(
        '--image-size', type=int, metavar='S', help='short side in pixels for --config; default: as training chooses'
    )
    parser.add_argument('--masks', action='store_true', help='also report what would break training on masks')
    args = parser.parse_args(argv)
    if args.image_size is not None and args.config is None:
        parser.error('--image-size needs --config')
    check_integer('image_size', args.image_size)
    check_data(args.data)
    if args.config is not None:
        check_config(args.config)

    import cv2

    from tokennorm.datasets.coco.inspection import inspect_splits
    from tokennorm.datasets.drawing import contact_sheet
    from tokennorm.engine.data import find_detection_data
    from tokennorm.files import make_output_dir

    splits = find_detection_data(args.data)
    cfg, learns_masks = None, False
    if args.config is not None:
        from tokennorm.config.reading import read_config
        from tokennorm.datasets.anchor_fit import anchor_fit
        from tokennorm.engine import data

        cfg = read_config(args.config)
        learns_masks = data.learns_masks(cfg)
    for split in splits.values():
        print(f'{split.name}: {split.source}, images in {split.image_dir}')
    found = inspect_splits(splits)
    print(f'\n{found.text(args.masks or learns_masks)}\n')
    if found.errors:
        count = f'{len(found.errors)} problems' if len(found.errors) > 1 else '1 problem'
        raise SystemExit(f'error: {count} that would break training or evaluation, listed above')
    make_output_dir(args.out)
    for split in splits.values():
        sheet = args.out / f'{split.name}.jpg'
        cv2.imwrite(str(sheet), contact_sheet(split, args.num_images))
        print(f'{sheet}: images of {split.name} with their annotations')
    if cfg is not None:
        content = next(iter(splits.values())).content
        changes = data.choose_image_size(cfg, content, args.image_size)
        fit = anchor_fit(cfg, content)
        print('\n'.join(['', *changes, str(fit or f'{cfg.filename} has no anchors of fixed sizes')]))
