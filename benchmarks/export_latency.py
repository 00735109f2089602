"""Latency of one image through a detector: PyTorch, torch.compile, onnxruntime and OpenVINO, with LayerNorm and DTN.

    python benchmarks/export_latency.py [--size 480 640] [--clock cpu]

The detector is the demo's RetinaNet with random weights. All contenders run the whole detector, from pixels to
non-maximum suppression, on one thread, and take turns in one run; the figure is the median.
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
from measuring import milliseconds, print_table
from mmengine.config import Config
from mmengine.registry import init_default_scope

from tokennorm.export.detector import WholeDetector
from tokennorm.export.runtime import Detector
from tokennorm.export.writing import export_detector
from tokennorm.registry import MODELS

ROOT = Path(__file__).resolve().parents[1]
VARIANTS = {'LayerNorm': 'retinanet_pvt-mini_fpn_shapes', 'DTN + DPN': 'retinanet_pvt-mini-dtn-dpn_fpn_shapes'}
METADATA = {
    'tokennorm.format': '1',
    'tokennorm.classes': '[]',
    'tokennorm.color': '"RGB"',
    'tokennorm.resize': 'null',
}


def contenders(name: str, images: torch.Tensor, folder: Path, compiled: bool) -> dict[str, Callable[[], object]]:
    """Returns what runs a variant on images (B, 3, H, W), by runtime."""
    init_default_scope('mmdet')
    cfg = Config.fromfile(ROOT / 'configs' / 'demo' / f'{VARIANTS[name]}.py')
    torch.manual_seed(0)
    detector = WholeDetector(MODELS.build(cfg.model))
    sizes = torch.zeros(len(images), 2, dtype=torch.long)
    found: dict[str, Callable[[], object]] = {'PyTorch': partial(detector, images, sizes)}
    if compiled:
        found['torch.compile'] = partial(torch.compile(detector), images, sizes)
    arrays = dict(images=images.numpy(), sizes=np.zeros((len(images), 2), dtype=np.int64))
    for runtime, suffix in (('onnxruntime', '.onnx'), ('OpenVINO', '.xml')):
        path = folder / f'{VARIANTS[name]}{suffix}'
        export_detector(detector, METADATA, path)
        found[runtime] = partial(Detector(path, threads=1).run, arrays)
    return found


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--size', type=int, nargs=2, default=(480, 640), metavar=('H', 'W'))
    parser.add_argument('--clock', choices=['wall', 'cpu'], default='wall', help='cpu suits a busy machine better')
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--no-compile', action='store_true', help='leave out torch.compile')
    args = parser.parse_args()
    torch.set_num_threads(1)
    images = torch.rand(1, 3, *args.size) * 255
    with tempfile.TemporaryDirectory() as folder:
        all_of_them = {
            (variant, runtime): run
            for variant in VARIANTS
            for runtime, run in contenders(variant, images, Path(folder), not args.no_compile).items()
        }
        times = milliseconds(all_of_them, 'cpu', args.clock, seconds=120, rounds=args.rounds)
    rows = []
    for runtime in dict.fromkeys(runtime for _, runtime in times):
        plain, ours = (times[variant, runtime] for variant in VARIANTS)
        cells = {f'{name}, ms': f'{value:.1f}' for name, value in zip(VARIANTS, (plain, ours), strict=True)}
        rows.append({'runtime': runtime, **cells, 'time relative to LayerNorm': f'{ours / plain:.2f}'})
    print_table(rows)


if __name__ == '__main__':
    main()
