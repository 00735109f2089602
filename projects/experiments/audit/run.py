"""Trains detectors on planted label errors, and scores their lists of suspects. The plan is in README.md."""

import argparse
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tokennorm
from experiments.audit.plant import plant
from experiments.cpu_default.run import processor_time
from tokennorm.base.files import write_atomically
from tokennorm.cli.command import command
from tokennorm.datasets.discovery import find_splits

FOLDS, EPOCHS = 3, 4
SETTINGS = ((0.05, 0), (0.05, 1), (0.02, 0), (0.1, 0))  # rate and seed, in the order of the plan


class Cell(NamedTuple):
    """A data set with planted errors."""

    data: Path
    rate: float
    seed: int

    @property
    def name(self) -> str:
        return f'{self.data.name}_{100 * self.rate:.0f}_{self.seed}'


@command
def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('step', choices=('train',))
    parser.add_argument('data', nargs='*', type=Path)
    parser.add_argument('--most', type=int, default=10**9, help='detectors to train in this call')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/audit'))
    args = parser.parse_args(argv)
    cells = [Cell(data, rate, seed) for rate, seed in SETTINGS for data in args.data]
    todo = [(cell, name) for cell in cells for name in ('whole', *(f'fold{k}' for k in range(FOLDS)))]
    todo = [(c, name) for c, name in todo if not (args.work_dir / c.name / name / 'seconds.json').is_file()]
    for cell, name in todo[: args.most]:
        if not (args.work_dir / cell.name / 'planted.json').is_file():
            prepare(cell, args.work_dir / cell.name)
        train(args.work_dir / cell.name / name, cell.seed)
    print(f'{max(0, len(todo) - args.most)} detectors are left')


def train(folder: Path, seed: int) -> None:
    """Trains one detector. An interrupted run starts anew, so that its time is known."""
    shutil.rmtree(folder / 'run', ignore_errors=True)
    began = processor_time()
    options = dict(model='trial', epochs=EPOCHS, seed=seed, workers=0, device='cpu')
    tokennorm.train(data=folder / 'data', out=folder / 'run', **options)
    if folder.name == 'whole':
        tokennorm.test(folder / 'run', data=folder / 'data', report=True)  # its test split is train
    write_atomically(folder / 'seconds.json', json.dumps(round(processor_time() - began)).encode())


def prepare(cell: Cell, folder: Path) -> None:
    """Writes the data with errors: whole, with train as its test split, and in folds whose val is the part left out."""
    shutil.rmtree(folder, ignore_errors=True)
    splits, planted, contents = find_splits(cell.data), dict[str, Any](), dict[str, Any]()
    for offset, name in enumerate(('train', 'val')):
        content = {key: value for key, value in splits[name].content.items() if key != 'tokennorm'}
        contents[name], planted[name] = plant(content, cell.rate, 2 * cell.seed + offset)
    images = splits['train'].image_dir
    write_data(folder / 'whole' / 'data', images, dict(contents, test=contents['train']))
    for k, parts in enumerate(divided(contents['train'], cell.seed)):
        write_data(folder / f'fold{k}' / 'data', images, parts)
    write_atomically(folder / 'planted.json', json.dumps(planted).encode())


def divided(content: dict[str, Any], seed: int) -> Iterator[dict[str, dict[str, Any]]]:
    """Yields train and val of each fold: val of all folds are the images of `content`."""
    images = sorted(content['images'], key=lambda image: str(image['file_name']))
    random.Random(seed).shuffle(images)
    for k in range(FOLDS):
        parts = {}
        for name in ('train', 'val'):
            part = [image for i, image in enumerate(images) if (i % FOLDS == k) == (name == 'val')]
            ids = {image['id'] for image in part}
            annotations = [one for one in content['annotations'] if one['image_id'] in ids]
            parts[name] = {**content, 'images': part, 'annotations': annotations}
        yield parts


def write_data(folder: Path, images: Path, contents: dict[str, dict[str, Any]]) -> None:
    """Writes COCO data whose images are a link."""
    (folder / 'annotations').mkdir(parents=True)
    (folder / 'images').symlink_to(images.resolve())
    for name, content in contents.items():
        (folder / 'annotations' / f'{name}.json').write_text(json.dumps(content), 'utf-8')


if __name__ == '__main__':
    main()
