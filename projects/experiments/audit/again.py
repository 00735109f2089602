"""Trains again, with --init or anew, after labels were corrected and images added. The plan is in README.md."""

import argparse
import json
import random
import shutil
from pathlib import Path
from statistics import mean
from typing import Any

import tokennorm
from experiments.audit.plant import plant
from experiments.audit.run import DATA, SIZE, write_data
from experiments.cpu_default.run import processor_time
from tokennorm.base.files import write_atomically
from tokennorm.cli.command import command
from tokennorm.datasets.discovery import find_splits
from tokennorm.report.scalars import read_scalars

RESULTS = Path(__file__).with_name('again.json')
FIRST, ADDED, RATE, SEEDS = 100, 50, 0.05, (0, 1)
LENGTHS = 3, 6  # epochs of the second training run; the first one has the longer of them
ARMS = 'init', 'anew'
TIE = 1.0  # AP


@command
def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('data', nargs='*', type=Path, help='folders of data to train on; without: prints the table')
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/again'))
    args = parser.parse_args(argv)
    for seed in SEEDS:
        for data in args.data:
            folder = args.work_dir / f'{data.name}_{seed}'
            if not (folder / 'corrected').is_dir():
                prepare(data, folder, seed)
            run(folder, 'first', LENGTHS[-1])
            for epochs in LENGTHS:
                for arm in ARMS:
                    run(folder, arm, epochs)
    print(*table(read()), sep='\n')


def prepare(data: Path, folder: Path, seed: int) -> None:
    """Writes the data of the first run, with errors in part of train, and the corrected data with further images."""
    shutil.rmtree(folder, ignore_errors=True)
    splits = find_splits(data)
    contents = {
        name: {key: value for key, value in splits[name].content.items() if key != 'tokennorm'}
        for name in ('train', 'val')
    }
    images = sorted(contents['train']['images'], key=lambda image: str(image['file_name']))
    random.Random(seed).shuffle(images)
    planted, _ = plant(part(contents['train'], images[:FIRST]), RATE, seed)
    for name, train in dict(first=planted, corrected=part(contents['train'], images[: FIRST + ADDED])).items():
        write_data(folder / name, splits['train'].image_dir, dict(train=train, val=contents['val']))


def part(content: dict[str, Any], images: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns COCO content of some of its images."""
    ids = {image['id'] for image in images}
    return {**content, 'images': images, 'annotations': [a for a in content['annotations'] if a['image_id'] in ids]}


def run(folder: Path, arm: str, epochs: int) -> None:
    """Trains one detector unless it is finished. An interrupted run starts anew, so that its time is known."""
    data, _, seed = folder.name.rpartition('_')
    key = dict(data=data, seed=int(seed), arm=arm, epochs=epochs)
    first, out = folder / f'first_{LENGTHS[-1]}', folder / f'{arm}_{epochs}'
    if any(key.items() <= result.items() for result in read()):
        return
    shutil.rmtree(out, ignore_errors=True)
    began = processor_time()
    tokennorm.train(
        data=folder / ('first' if arm == 'first' else 'corrected'),
        out=out,
        model='trial',
        epochs=epochs,
        image_size=SIZE,
        seed=int(seed),
        init=first if arm == 'init' else None,
        workers=0,
        device='cpu',
    )
    ap = read_scalars(out)['coco/bbox_mAP'][epochs]
    found = key | dict(AP=round(100 * ap, 1), cpu_seconds=round(processor_time() - began))
    write_atomically(RESULTS, f'{json.dumps([*read(), found], indent=1)}\n'.encode())


def read() -> list[dict[str, Any]]:
    """Returns the results of all finished runs."""
    return json.loads(RESULTS.read_text('utf-8')) if RESULTS.is_file() else []


def table(results: list[dict[str, Any]]) -> list[str]:
    """Returns the lines of a Markdown table: AP of each seed, and the mean of the minutes; then the decisions."""
    names = ['first run', *(f'{arm}, {epochs} epochs' for epochs in LENGTHS for arm in ('`--init`', 'anew'))]
    lines = [f'| data | {" | ".join(names)} |', '|---' * (1 + len(names)) + '|']
    for data in DATA:
        runs = [_runs(results, data, 'first', LENGTHS[-1])]
        runs += [_runs(results, data, arm, epochs) for epochs in LENGTHS for arm in ARMS]
        cells = [_cell(some) if some else 'not measured' for some in runs]
        lines.append(f'| {data} | {" | ".join(cells)} |')
    return [*lines, '', *(f'{epochs} epochs: {decision(results, epochs)}' for epochs in LENGTHS)]


def decision(results: list[dict[str, Any]], epochs: int) -> str:
    """Returns which arm is better after so many epochs, by the rule of the plan."""
    differences = []
    for data in DATA:
        init, anew = ([one['AP'] for one in _runs(results, data, arm, epochs)] for arm in ARMS)
        if not len(init) == len(anew) == len(SEEDS):
            return 'not measured'
        differences.append(mean(init) - mean(anew))
    if min(differences) > TIE:
        return '`--init`'
    return 'anew' if max(differences) < -TIE else 'undecided'


def _cell(runs: list[dict[str, Any]]) -> str:
    return f'{", ".join(str(one["AP"]) for one in runs)} ({mean(one["cpu_seconds"] for one in runs) / 60:.1f})'


def _runs(results: list[dict[str, Any]], data: str, arm: str, epochs: int) -> list[dict[str, Any]]:
    key = dict(data=data, arm=arm, epochs=epochs)
    return sorted((one for one in results if key.items() <= one.items()), key=lambda one: one['seed'])


if __name__ == '__main__':
    main()
