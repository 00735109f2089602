"""Writes the pretrained PVT-mini that comes with the package, float16, from finished runs of the study.

    python projects/experiments/study/small_weights.py work_dirs/study-evidence/pvt_mini --seed 10

reads {ln,dtn,local}/seed10/{weights.pth,record.json} and writes
projects/tokennorm/weights/pvt-mini{,-dtn,-local}.safetensors. It prints their hashes, for
projects/tokennorm/checkpoints/locating.py.
"""

import argparse
import hashlib
import json
from pathlib import Path

import torch

from tokennorm.checkpoints.publication import to_bytes
from tokennorm.checkpoints.safe_reading import read_state_dict

FOLDER = Path(__file__).parents[2] / 'tokennorm' / 'weights'
DATA = 'Tiny ImageNet: 200 classes of ImageNet, 99,998 images of 64 x 64 pixels'
TERMS = "ImageNet's terms of access: non-commercial research and education only"


def small_weights(run: Path) -> bytes:
    """The backbone of a finished run as a file: float16 tensors, with data, terms, schedule and accuracy."""
    record = json.loads((run / 'record.json').read_text(encoding='utf-8'))
    last = record['curve'][str(record['epochs'])]
    state_dict = {
        key: value.half() if value.is_floating_point() else value
        for key, value in read_state_dict(run / 'weights.pth').items()
        if key.startswith('backbone.')
    }
    if not all(value.isfinite().all() for value in state_dict.values() if value.dtype == torch.float16):
        raise ValueError(f'{run}: a value is too large for float16')
    meta = dict(
        model='tokennorm.PVT, arch mini, pretrain_img_size 64',
        arm=record['arm'],
        seed=record['seed'],
        data=DATA,
        terms=TERMS,
        schedule=f'{record["epochs"]} epochs, batch {record["batch_size"]}, {json.dumps(record["optimizer"])}',
        top1=round(last['accuracy/top1'], 2),
    )
    return to_bytes(dict(state_dict=state_dict, meta=meta), '.safetensors')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path, help='folder of the stage pvt_mini')
    parser.add_argument('--seed', type=int, default=10)
    args = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for arm, name in (('ln', 'pvt-mini'), ('dtn', 'pvt-mini-dtn'), ('local', 'pvt-mini-local')):
        content = small_weights(args.folder / arm / f'seed{args.seed}')
        (FOLDER / f'{name}.safetensors').write_bytes(content)
        print(f'{name}: {len(content) / 1e6:.1f} MB, {hashlib.sha256(content).hexdigest()}')


if __name__ == '__main__':
    main()
