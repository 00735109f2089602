"""Trains trial detectors from several initial weights on small datasets, and prints a table of their AP.

    python projects/experiments/initial_weights/run.py data/raccoon data/bccd --seeds 0 1 2
    python projects/experiments/initial_weights/run.py

The first command trains each run with `tokennorm.train`, as `tokennorm train --data DIR` does, and adds its result to
results.json next to this file. It can be interrupted and rerun. The second one prints the table only.
"""

import argparse
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import tokennorm
from tokennorm.base.files import write_atomically
from tokennorm.cli.command import command
from tokennorm.report.scalars import read_scalars

RESULTS = Path(__file__).with_name('results.json')
EPOCHS = 12
IMAGE_SIZES = dict(nuclei150=256)  # pixels; their own size, where training would enlarge them
WEIGHTS: dict[str, dict[str, Any]] = {  # arguments of `tokennorm.train`
    'PVT-mini, random': dict(model='mini', norm='ln', init='none'),
    'PVT-mini, LN': dict(model='mini', norm='ln', init='imagenet'),
    'PVT-mini, DTN': dict(model='mini', norm='dtn', init='imagenet'),
    'PVT-mini, local': dict(model='mini', norm='local', init='imagenet'),
    'EfficientNet-Lite0': dict(model='trial', init='imagenet'),
}


@command
def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('data', nargs='*', type=Path, help='folders in COCO, YOLO or Pascal VOC format')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0])
    parser.add_argument(
        '--weights', nargs='+', choices=WEIGHTS, default=list(WEIGHTS), help='these initial weights only'
    )
    parser.add_argument('--work-dir', type=Path, default=Path('work_dirs/initial_weights'))
    args = parser.parse_args(argv)
    for seed in args.seeds:
        for data in args.data:
            for weights in args.weights:
                run(data, weights, seed, args.work_dir / f'{data.name}_{weights}_{seed}'.replace(', ', '_'))
    print(*table(read()), sep='\n')


def read() -> list[dict[str, Any]]:
    """The results of all finished runs."""
    return json.loads(RESULTS.read_text('utf-8')) if RESULTS.is_file() else []


def run(data: Path, weights: str, seed: int, work_dir: Path) -> None:
    """Trains one run, from its latest checkpoint if it has one, unless it is finished.

    An interrupted run has no time, since only the time of this process is known.
    """
    key = dict(data=data.name, weights=weights, seed=seed)
    if any(key.items() <= result.items() for result in read()):
        return
    is_new = not work_dir.exists()
    work_dir.mkdir(parents=True, exist_ok=True)  # which `resume` needs
    began = time.process_time()
    options = {'randomness.seed': seed}
    tokennorm.train(
        data=data,
        epochs=EPOCHS,
        image_size=IMAGE_SIZES.get(data.name),
        work_dir=work_dir,
        resume=True,
        workers=0,
        cfg_options=options,
        **WEIGHTS[weights],
    )
    seconds = round(time.process_time() - began) if is_new else None
    final = {name: values[EPOCHS] for name, values in read_scalars(work_dir).items() if EPOCHS in values}
    kept = {name.removeprefix('coco/'): final[name] for name in final if name.endswith(('mAP', 'mAP_50'))}
    results = [*read(), key | kept | dict(cpu_seconds=seconds)]
    write_atomically(RESULTS, f'{json.dumps(results, indent=1)}\n'.encode())


def table(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """A Markdown table: mean and deviation over the seeds, AP from 0 to 100."""
    results = list(results)
    rows = ['| data | initial weights | AP | AP50 | mask AP | seeds | minutes on one core |', '|---' * 7 + '|']
    for data in dict.fromkeys(result['data'] for result in results):
        for weights in WEIGHTS:
            own = [result for result in results if (result['data'], result['weights']) == (data, weights)]
            metrics = [_cell(own, name, 100) for name in ('bbox_mAP', 'bbox_mAP_50', 'segm_mAP')]
            if own:
                cells = [*metrics, str(len(own)), _cell(own, 'cpu_seconds', 1 / 60)]
                rows.append(f'| {" | ".join([data, weights, *cells])} |')
    return rows


def _cell(results: Iterable[Mapping[str, Any]], name: str, scale: float) -> str:
    values = [scale * result[name] for result in results if result.get(name) is not None]
    spread = f' ± {stdev(values):.1f}' if len(values) > 1 else ''
    return f'{mean(values):.1f}{spread}' if values else ''


if __name__ == '__main__':
    main()
