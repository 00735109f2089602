"""Fine-tunes RTMDet-tiny from a small detector that takes the place of mmdet's COCO weights; the plan is in README.md.

python projects/experiments/fine_tuning/run.py OUT data/bccd data/nuclei
python projects/experiments/fine_tuning/run.py
"""

import argparse
import json
import random
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import tokennorm
from experiments.cpu_default.run import processor_time
from experiments.shapes import make_shapes_dataset
from tokennorm.base.files import write_atomically
from tokennorm.cli.command import command
from tokennorm.report.scalars import read_scalars

CONFIG = 'mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco'
RESULTS = Path(__file__).with_name('results.json')
SWITCH = {'left out': 0, 'up to epoch 8': 8, 'up to epoch 11': 11, 'to the end': 1000}  # Mosaic and MixUp
BEFORE = 'surrogate', 'shapes600_half', 'left out', 0.001, 5, 0, None


@command
def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('out', nargs='?', type=Path, help='folder of data sets and runs')
    parser.add_argument('data', nargs='*', type=Path, help='bccd and nuclei, COCO format')
    parser.add_argument('--mosaic', default='left out', choices=SWITCH, help='of steps rate and seed: the winner')
    parser.add_argument('--rate', type=float, help='of step seed: the winner')
    args = parser.parse_args(argv)
    if args.out is not None:
        prepare(args.out, args.data)
        runs = [BEFORE]
        runs += [('transfer', 'shapes150_half', 'left out', 0.001, 6, s, w) for s in (0, 1) for w in (BEFORE, None)]
        runs += [('recipe', f'{d.name}60', mosaic, 0.001, 12, 0, BEFORE) for mosaic in SWITCH for d in args.data]
        runs += [('rate', f'{d.name}60', args.mosaic, r, 12, 0, BEFORE) for r in (0.0005, 0.002) for d in args.data]
        if args.rate:
            pairs = dict.fromkeys([(args.mosaic, args.rate), ('up to epoch 11', 0.002)])
            runs += [('seed', f'{d.name}60', *pair, 12, s, BEFORE) for s in (0, 1) for pair in pairs for d in args.data]
        for one in runs:
            run(args.out, *one)
    print(*table(read()), sep='\n')


def prepare(out: Path, folders: Collection[Path]) -> None:
    """Writes the data sets, once."""
    for images, seed, classes in ((600, 0, ('disk', 'star')), (150, 1, ('square', 'triangle'))):
        folder = make_shapes_dataset(out / f'shapes{images}', images, 100, 160, seed)
        subset(folder, out / f'shapes{images}_half', classes)
    for folder in folders:
        subset(folder, out / f'{folder.name}60', (), dict(train=60, val=40))


def subset(folder: Path, out: Path, classes: Collection[str], numbers: dict[str, int] | None = None) -> None:
    """Writes boxes of some classes, or of some images drawn with a fixed seed."""
    if out.exists():
        return
    (out / 'annotations').mkdir(parents=True)
    (out / 'images').symlink_to((folder / 'images').resolve())
    for split in ('train', 'val'):
        content = json.loads((folder / 'annotations' / f'{split}.json').read_text('utf-8'))
        kept = {one['id'] for one in content['categories'] if one['name'] in classes or not classes}
        if numbers:
            content['images'] = random.Random(0).sample(content['images'], numbers[split])
        chosen = {image['id'] for image in content['images']}
        content['categories'] = [one for one in content['categories'] if one['id'] in kept]
        content['annotations'] = [
            {key: value for key, value in one.items() if key != 'segmentation'}
            for one in content['annotations']
            if one['image_id'] in chosen and one['category_id'] in kept
        ]
        (out / 'annotations' / f'{split}.json').write_text(json.dumps(content), 'utf-8')


def run(
    out: Path, step: str, data: str, mosaic: str, rate: float, epochs: int, seed: int, before: tuple[Any, ...] | None
) -> None:
    """Trains one run unless it is finished. An interrupted run starts anew, so that its time is known."""
    init = 'random' if before is None else before[0]
    key = dict(data=data, mosaic=mosaic, rate=rate, epochs=epochs, seed=seed, init=init)
    results = read()
    if any(key.items() <= result.items() for result in results):
        return
    work_dir = out / f'{data}_{mosaic}_{rate}_{epochs}_{seed}_{init}'.replace(' ', '-')
    shutil.rmtree(work_dir, ignore_errors=True)
    began = processor_time()
    options = {'custom_hooks.1.switch_epoch': SWITCH[mosaic], 'train_cfg.val_interval': epochs}
    options['train_cfg.dynamic_intervals'] = None
    tokennorm.train(
        CONFIG,
        data=out / data,
        init='none' if before is None else surrogate(out),
        epochs=epochs,
        batch_size=4,
        lr=rate,
        image_size=160,
        seed=seed,
        workers=0,
        work_dir=work_dir,
        cfg_options=options,
    )
    seconds = round(processor_time() - began)
    if before is None and step == 'surrogate':
        shutil.copy(work_dir / f'epoch_{epochs}.pth', surrogate(out))
    scalars = read_scalars(work_dir)
    kept = {name: scalars[f'coco/{name}'][epochs] for name in ('bbox_mAP', 'bbox_mAP_50')}
    results = [*read(), dict(step=step) | key | kept | dict(cpu_seconds=seconds)]
    write_atomically(RESULTS, f'{json.dumps(results, indent=1)}\n'.encode())


def surrogate(out: Path) -> Path:
    """The detector from which others start."""
    return out / 'surrogate.pth'


def read() -> list[dict[str, Any]]:
    """The results of all finished runs."""
    return json.loads(RESULTS.read_text('utf-8')) if RESULTS.is_file() else []


def table(results: list[dict[str, Any]]) -> list[str]:
    """A Markdown table: AP and AP50, 0 to 100, and minutes of processor time."""
    heading = '| data | initial weights | Mosaic and MixUp | rate | epochs | seed | AP | AP50 | minutes |'
    rows = [heading, '|---' * 9 + '|']
    for one in results:
        cells = [one[key] for key in ('data', 'init', 'mosaic', 'rate', 'epochs', 'seed')]
        cells += [f'{100 * one["bbox_mAP"]:.1f}', f'{100 * one["bbox_mAP_50"]:.1f}', f'{one["cpu_seconds"] / 60:.1f}']
        rows.append(f'| {" | ".join(map(str, cells))} |')
    return rows


if __name__ == '__main__':
    main()
