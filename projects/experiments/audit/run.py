"""Trains detectors on planted label errors, and scores their lists of suspects. The plan is in README.md."""

import argparse
import json
import math
import random
import shutil
import time
from collections.abc import Iterator
from itertools import product
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
    parser.add_argument('data', nargs='*', type=Path, help='folders of data, to train on')
    parser.add_argument('--seconds', type=float, default=math.inf, help='begin no detector after so many seconds')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/audit'))
    args = parser.parse_args(argv)
    if args.step == 'score':
        write_atomically(RESULTS, f'{json.dumps(list(scored(args.work_dir)), indent=1)}\n'.encode())
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
            for method, suspects in both_lists(truth, CocoResults(np.concatenate(tables))).items():
                counts = {str(first): count_found(suspects, planted[split], first) for first in FIRST}
                key = dict(data=data, percent=int(percent), seed=int(seed), list=name, method=method)
                yield key | dict(planted=len(planted[split]), total=len(suspects), cpu_seconds=seconds, counts=counts)


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
    """Yields the lines of a Markdown table: precision and recall in percent of the first 20, 50 and 100."""
    yield (
        '| data | errors | seed | list | planted | method | listed | ' + ' | '.join(f'first {n}' for n in FIRST) + ' |'
    )
    yield '|---' * (7 + len(FIRST)) + '|'
    for percent, seed in ((round(100 * rate), seed) for rate, seed in SETTINGS):
        for data, name in product(('raccoon', 'bccd'), ('val', 'train', 'folds')):
            for method in ('before', 'suspects'):
                key = dict(data=data, percent=percent, seed=seed, list=name, method=method)
                found = next((one for one in results if key.items() <= one.items()), None)
                cells = ['-', method, '-', *['not measured'] * len(FIRST)]
                if found:
                    cells = [str(found['planted']), method, str(found['total'])]
                    cells += [_precision_and_recall(found, n) for n in FIRST]
                yield f'| {data} | {percent}% | {seed} | {name} | {" | ".join(cells)} |'


def _precision_and_recall(found: dict[str, Any], first: int) -> str:
    counts = found['counts'][str(first)]
    return f'{100 * counts["right"] / max(counts["listed"], 1):.0f}, {100 * counts["found"] / found["planted"]:.0f}'


if __name__ == '__main__':
    main()
