"""Trains detectors on planted label errors, and scores their lists of suspects. The plan is in README.md."""

import argparse
import json
import math
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tokennorm
from experiments.audit.plant import count_found, plant
from experiments.cpu_default.run import processor_time
from tokennorm.base.files import write_atomically
from tokennorm.cli.command import command
from tokennorm.datasets.discovery import find_splits
from tokennorm.evaluation.analysis import MATCH_IOU, evaluate, select_categories
from tokennorm.evaluation.results import CocoResults

RESULTS = Path(__file__).with_name('results.json')
FOLDS, EPOCHS, SIZE = 3, 3, 224
FIRST = 20, 50, 100  # suspects
DATA = 'raccoon', 'bccd'
REDRAWN = tuple((rate, seed) for rate in (0.02, 0.05, 0.1) for seed in (0, 1))
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
    parser.add_argument('step', choices=('train', 'score', 'pages'))
    parser.add_argument(
        'data', nargs='*', type=Path, help='folders of data, to train on; with score, to draw other errors of'
    )
    parser.add_argument('--seconds', type=float, default=math.inf, help='begin no detector after so many seconds')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/audit'))
    args = parser.parse_args(argv)
    if args.step == 'score':
        write_atomically(
            RESULTS, f'{json.dumps([*scored(args.work_dir), *redrawn(args.work_dir, args.data)], indent=1)}\n'.encode()
        )
    if args.step != 'train':
        print(*tables(json.loads(RESULTS.read_text('utf-8'))), sep='\n')
        return
    names = ['whole', *(f'fold{k}' for k in range(FOLDS))]
    todo = [(Cell(d, *setting), name) for setting in SETTINGS for name in names for d in args.data]
    todo = [(c, name) for c, name in todo if not (args.work_dir / c.name / name / 'seconds.json').is_file()]
    begin = time.monotonic()
    while todo and time.monotonic() - begin < args.seconds:
        cell, name = todo.pop(0)
        if not (args.work_dir / cell.name / 'planted.json').is_file():
            prepare(cell, args.work_dir / cell.name)
        train(args.work_dir / cell.name / name, cell.seed)
    print(f'{len(todo)} detectors are left')


def train(folder: Path, seed: int) -> None:
    """Trains one detector. An interrupted run starts anew, so that its time is known."""
    shutil.rmtree(folder / 'run', ignore_errors=True)
    began = processor_time()
    options = dict(model='trial', epochs=EPOCHS, image_size=SIZE, seed=seed, workers=0, device='cpu')
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


def scored(work_dir: Path) -> Iterator[dict[str, Any]]:
    """Yields what the lists of each cell find whose detectors are finished."""
    for file in sorted(work_dir.glob('*/planted.json')):
        folder, planted = file.parent, json.loads(file.read_text('utf-8'))
        data, percent, seed = folder.name.rsplit('_', 2)
        whole, folds = folder / 'whole' / 'run', [folder / f'fold{k}' / 'run' for k in range(FOLDS)]
        lists = dict(train=[whole / 'test'], val=[whole], folds=folds)
        for name, runs in lists.items():
            if not all((run / 'report.bbox.json').is_file() for run in runs):
                continue
            split = 'val' if name == 'val' else 'train'
            truth = json.loads((folder / 'whole' / 'data' / 'annotations' / f'{split}.json').read_text('utf-8'))
            tables = [CocoResults.read(run / 'report.bbox.json').table for run in runs]
            trained = folds if name == 'folds' else [whole]
            files = [run.parent / 'seconds.json' for run in trained]
            times = [json.loads(file.read_text('utf-8')) if file.is_file() else None for file in files]
            seconds = None if None in times else sum(times)  # None of a run that was interrupted
            key = dict(data=data, percent=int(percent), seed=int(seed), list=name, cpu_seconds=seconds)
            yield from counted(key, truth, CocoResults(np.concatenate(tables)), planted[split])


def redrawn(work_dir: Path, folders: list[Path]) -> Iterator[dict[str, Any]]:
    """Yields what the lists of val find of other errors, by the detectors that were trained on 5% errors of seed 0."""
    for folder in folders:
        run = work_dir / Cell(folder, *SETTINGS[0]).name / 'whole' / 'run'
        if (run / 'report.bbox.json').is_file():
            content, detections = dict(find_splits(folder)['val'].content), CocoResults.read(run / 'report.bbox.json')
            for rate, seed in REDRAWN:
                truth, planted = plant(content, rate, 100 + seed)
                key = dict(data=folder.name, percent=round(100 * rate), seed=100 + seed, list='redrawn')
                yield from counted(key, truth, detections, planted)


def counted(
    key: dict[str, Any], truth: dict[str, Any], detections: CocoResults, planted: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yields what the list of each method finds."""
    for method, suspects in both_lists(truth, detections).items():
        counts = {str(first): count_found(suspects, planted, first) for first in FIRST}
        yield key | dict(method=method, planted=len(planted), total=len(suspects), counts=counts)


def both_lists(truth: dict[str, Any], detections: CocoResults) -> dict[str, list[dict[str, Any]]]:
    """The suspects, and hotcoco's label errors, which version 1.2.0 shows."""
    result = evaluate(select_categories(truth, None), detections)
    suspects = [
        dict(image_id=s.image_id, kind=s.kind, boxes=[one['bbox'] for one in (s.annotation, s.detection) if one])
        for s in result.suspects
    ]
    cut = result.kept.evaluate(select_categories(truth, None), 'bbox', max_dets=[1, 10, 100])
    errors = cut.image_diagnostics(iou_thr=MATCH_IOU, score_thr=result.threshold)['label_errors']
    kinds = dict(wrong_label='wrong class', missing_annotation='missing')
    before = [
        dict(image_id=e['image_id'], kind=kinds[e['type']], boxes=[result.kept.table[e['dt_id'] - 1, 1:5].tolist()])
        for e in errors
    ]
    return dict(suspects=suspects, before=before)


def tables(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yields the lines of a Markdown table: precision and recall of the first 20, 50 and 100, in percent."""
    columns = [f'{what} of the first {first}' for what in ('precision', 'recall') for first in FIRST]
    yield f'| data | errors | seed | list | planted | {" | ".join(columns)} |'
    yield '|---' * (5 + len(columns)) + '|'
    rows = [(rate, seed, data, name) for rate, seed in SETTINGS for data in DATA for name in ('val', 'train', 'folds')]
    rows += [(rate, 100 + seed, data, 'redrawn') for data in DATA for rate, seed in REDRAWN]
    for rate, seed, data, name in rows:
        key = dict(data=data, percent=round(100 * rate), seed=seed, list=name)
        found = {one['method']: one for one in results if key.items() <= one.items()}
        cells = ['', *['not measured'] * len(columns)]
        if found:
            both = [_shares(found[method]) for method in ('before', 'suspects')]
            cells = [str(found['before']['planted']), *(' to '.join(pair) for pair in zip(*both, strict=True))]
        yield f'| {data} | {100 * rate:.0f}% | {seed} | {name} | {" | ".join(cells)} |'


def _shares(found: dict[str, Any]) -> list[str]:
    """Precision of the first 20, 50 and 100, then recall; a dash for the precision of an empty list."""
    counts = [found['counts'][str(first)] for first in FIRST]
    precision = [f'{100 * one["right"] / one["listed"]:.0f}' if one['listed'] else '-' for one in counts]
    return precision + [f'{100 * one["found"] / found["planted"]:.0f}' for one in counts]


if __name__ == '__main__':
    main()
