"""Writes a classifier's images into WebDataset shards: `write_shards.py DIR OUT`

DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg become OUT/train/*.tar and OUT/val/*.tar. Without OUT, DIR is one
folder of shards from elsewhere, and gets the index that training needs.
"""

import argparse
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from mmpretrain.datasets import CustomDataset

from experiments.imagenet_shards.shards import INDEX, count_classes
from tokennorm.base.files import TEMPORARY, write_atomically
from tokennorm.datasets.image_files import IMAGE_SUFFIXES
from tokennorm.datasets.image_folder import find_image_folder


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
            write_index(
                args.dir, None if args.classes is None else args.classes.read_text(encoding='utf-8').splitlines()
            )
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


def write_shards(samples: Iterable[tuple[str, int]], classes: Sequence[str], out: Path, shard_bytes: float) -> None:
    """Writes images and labels into OUT/000000.tar, OUT/000001.tar, ..., and the index."""
    if out.exists():
        raise FileExistsError(f'{out} exists: name a new folder')
    unfinished = out.with_name(out.name + TEMPORARY)  # of an interruption, or of this call
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    rest = enumerate(samples)
    for shard, first in enumerate(rest):
        with tarfile.open(unfinished / f'{shard:06d}.tar', 'w') as tar:
            for number, (path, label) in chain([first], rest):
                image = Path(path)
                for suffix, content in ((image.suffix.lower(), image.read_bytes()), ('.cls', b'%d' % label)):
                    member = tarfile.TarInfo(f'{number:08d}{suffix}')
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                if tar.offset >= shard_bytes:
                    break
    write_index(unfinished, classes)
    unfinished.rename(out)


def write_index(folder: Path, classes: Sequence[str] | None = None) -> None:
    """Writes the index of all shards, uncompressed tar files, of a folder, of any program that writes WebDatasets.

    The classes are the names of the labels; None for the numbers.
    """
    paths = sorted(folder.glob('*.tar'))
    shards = {path.name: dict(bytes=path.stat().st_size, samples=_samples(path)) for path in paths}
    labels = [label for shard in shards.values() for *_, label in shard['samples']]
    if not labels:
        raise ValueError(f'{folder} has no *.tar with images ({", ".join(IMAGE_SUFFIXES)})')
    classes = [str(label) for label in range(max(labels) + 1)] if classes is None else list(classes)
    wrong = next((label for label in labels if not 0 <= label < len(classes)), None)
    if wrong is not None:
        raise ValueError(f'{folder} has label {wrong}, but there are {len(classes)} class names, counted from 0')
    write_atomically(folder / INDEX, json.dumps(dict(classes=classes, shards=shards)).encode())


def _samples(path: Path) -> list[tuple[str, int, int, int]]:
    """Name, offset, size and label of each image of a shard. A key ends at the first dot of the file's name."""
    images, labels = {}, {}
    try:
        with tarfile.open(path, 'r:') as tar:
            for member in tar:
                folder, _, name = member.name.rpartition('/')
                key, _, suffix = name.partition('.')
                if suffix == 'cls':
                    labels[folder, key] = int(tar.extractfile(member).read())
                elif f'.{suffix.lower()}' in IMAGE_SUFFIXES:
                    images[folder, key] = member.name, member.offset_data, member.size
    except (tarfile.TarError, ValueError) as error:
        raise ValueError(f'{path} is not a complete, uncompressed WebDataset shard ({error}): copy it again') from error
    unlabeled = [place[0] for key, place in images.items() if key not in labels]
    if unlabeled:
        raise ValueError(f'{path}: {unlabeled[0]} has no label: the shard needs a file KEY.cls with its number')
    return [(*place, labels[key]) for key, place in images.items()]


if __name__ == '__main__':
    main()
