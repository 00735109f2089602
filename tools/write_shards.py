"""Writes a classifier's images into WebDataset shards: `python tools/write_shards.py DIR OUT`

DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg become OUT/train/*.tar and OUT/val/*.tar, for `--data OUT`. Without OUT,
DIR is one folder of shards from elsewhere, and gets the index that training needs.
"""

import argparse
import sys
from pathlib import Path

from mmpretrain.datasets import CustomDataset

from tokennorm.datasets.image_files import IMAGE_SUFFIXES
from tokennorm.datasets.image_folder import find_image_folder
from tokennorm.datasets.shards import count_classes, write_index, write_shards


def parse_args(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('dir', type=Path, metavar='DIR', help='folder of images, or of shards')
    parser.add_argument('out', nargs='?', type=Path, metavar='OUT', help='new folder of shards')
    parser.add_argument('--shard-size', type=float, default=1000, metavar='MB', help='size of a shard (default: 1000)')
    parser.add_argument('--classes', type=Path, metavar='FILE', help='without OUT: names of the classes, one per line')
    return parser.parse_args(argv)


def main(argv=None):
    args = parse_args(argv)
    try:
        if args.out is None:
            write_index(args.dir, None if args.classes is None else args.classes.read_text().splitlines())
            written = [args.dir]
        else:
            written = [args.out / name for name in _convert(args.dir, args.out, args.shard_size * 1e6)]
    except (OSError, ValueError) as error:
        sys.exit(f'error: {error}')
    for folder in written:
        counts = count_classes(folder)
        shards = len(list(folder.glob('*.tar')))
        print(f'{folder}: {sum(counts.values())} images of {len(counts)} classes in {shards} shards')


def _convert(source, out, shard_bytes):
    for name, split in find_image_folder(source).items():
        dataset = CustomDataset(data_prefix=str(split.folder), extensions=IMAGE_SUFFIXES)  # its order
        samples = (dataset.get_data_info(i) for i in range(len(dataset)))
        write_shards(((s['img_path'], s['gt_label']) for s in samples), dataset.CLASSES, out / name, shard_bytes)
        yield name


if __name__ == '__main__':
    main()
