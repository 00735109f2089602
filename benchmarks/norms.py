"""Time of a training step and of an exported detector with each norm in the blocks, relative to LayerNorm.

    python benchmarks/norms.py [--clock cpu] [--rounds 30]

The step is forward and backward of PVT-mini on 128 images of 64 x 64, without optimizer. The detector is the demo's
RetinaNet on PVT-mini with the plain stem, random weights, one image of 480 x 640, from pixels to non-maximum
suppression, in onnxruntime. Its export merges PRepBN into the linear layers after it. One thread. The norms take turns
in one run; the figures are medians.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault('OMP_NUM_THREADS', '1')

import numpy as np
import torch
from export_latency import CONFIGS, METADATA
from measuring import CLOCKS, milliseconds, print_table
from mmengine.registry import init_default_scope

from experiments.prepbn.fold_norms import fold_norms
from tokennorm.backbones import PVT
from tokennorm.config.open_config import read_config
from tokennorm.export.whole_detector import WholeDetector
from tokennorm.export.writing import to_onnx, trace
from tokennorm.inference.runtime import ExportedDetector
from tokennorm.registry import MODELS

NORMS = ('LN', 'RMSNorm', 'DyT', 'Derf', 'PRepBN', 'DTN', 'LocalLayerNorm')


def training_step(norm: str, images: torch.Tensor) -> Callable[[], None]:
    """Forward and backward of the four feature maps' mean squares."""
    backbone = PVT('mini', token_norm_cfg=dict(type=norm)).train()

    def run() -> None:
        backbone.zero_grad(set_to_none=True)
        sum(x.square().mean() for x in backbone(images)).backward()

    return run


def exported(norm: str, size: tuple[int, int], folder: Path) -> Callable[[], object]:
    """What runs the exported detector on one image."""
    init_default_scope('mmdet')
    cfg = read_config(CONFIGS[0])
    cfg.model.backbone.token_norm_cfg = dict(type=norm)
    torch.manual_seed(0)
    detector = WholeDetector(fold_norms(MODELS.build(cfg.model)))
    arrays = dict(images=np.random.default_rng(0).random((1, 3, *size), np.float32) * 255, sizes=np.zeros((1, 2), int))
    path = folder / f'{norm}.onnx'
    path.write_bytes(to_onnx(trace(detector), detector, METADATA))
    return partial(ExportedDetector(path, threads=1).run, arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--batch-size', type=int, default=128)
    parser.add_argument('--size', type=int, nargs=2, default=(480, 640), metavar=('H', 'W'), help='of the detector')
    parser.add_argument('--clock', choices=list(CLOCKS), default='wall', help='cpu suits a busy machine better')
    parser.add_argument('--rounds', type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.randn(args.batch_size, 3, 64, 64)
    measure = partial(milliseconds, device='cpu', clock=args.clock, seconds=300, rounds=args.rounds)
    columns = {'training step': measure({norm: training_step(norm, images) for norm in NORMS})}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        columns['exported detector'] = measure({norm: exported(norm, args.size, Path(folder)) for norm in NORMS})
    rows = []
    for norm in NORMS:
        cells = {name: f'{times[norm] / times["LN"]:.2f} ({times[norm]:.0f} ms)' for name, times in columns.items()}
        rows.append({'norm': norm, **cells})
    print_table(rows)


if __name__ == '__main__':
    main()
