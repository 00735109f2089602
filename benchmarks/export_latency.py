"""Latency of one image through a detector: PyTorch, torch.compile, onnxruntime and OpenVINO, with LayerNorm and DTN.

    python benchmarks/export_latency.py [--size 480 640] [--configs LN_CONFIG DTN_CONFIG] [--clock cpu --minimum]

The detectors are the demo's RetinaNet unless two configs are named, with random weights. All contenders run the whole
detector, from pixels to non-maximum suppression, on one thread, and take turns in one run; the figure is the median.
"one image" is a file of `tokennorm export --batch-size 1`. docs/speed.md has `--rounds 11 --no-compile --clock cpu`.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault('OMP_NUM_THREADS', '1')

import numpy as np
import torch
from measuring import milliseconds, print_table
from mmengine.registry import init_default_scope

from tokennorm.config.open_config import read_config
from tokennorm.export.whole_detector import WholeDetector
from tokennorm.export.writing import to_onnx, trace, write_openvino
from tokennorm.inference.runtime import ExportedDetector
from tokennorm.registry import MODELS

CONFIGS = ('demo/retinanet_pvt-mini_fpn_shapes', 'demo/retinanet_pvt-mini-dtn-dpn_fpn_shapes')
METADATA = {
    'tokennorm.format': '1',
    'tokennorm.classes': '[]',
    'tokennorm.category_ids': '[]',
    'tokennorm.color': '"RGB"',
    'tokennorm.resize': 'null',
    'tokennorm.use': '""',
}


def contenders(config: str, images: torch.Tensor, folder: Path, compiled: bool) -> dict[str, Callable[[], object]]:
    """Returns what runs a config's detector on images (B, 3, H, W), by runtime."""
    cfg = read_config(config)
    init_default_scope('mmdet')
    torch.manual_seed(0)
    cfg.model.backbone.init_cfg = None
    detector = WholeDetector(MODELS.build(cfg.model))
    sizes = torch.zeros(len(images), 2, dtype=torch.long)
    found: dict[str, Callable[[], object]] = {'PyTorch': partial(detector, images, sizes)}
    if compiled:
        found['torch.compile'] = partial(torch.compile(detector), images, sizes)
    arrays = dict(images=images.numpy(), sizes=np.zeros((len(images), 2), dtype=np.int64))
    for suffix, whole in (('', detector), (', one image', WholeDetector(detector.detector, alone=True))):
        content = to_onnx(trace(whole), whole, METADATA)
        stem = f'{Path(config).stem}{suffix}'
        (folder / f'{stem}.onnx').write_bytes(content)
        write_openvino(content, METADATA, folder / f'{stem}.xml')
        for name, file in (('onnxruntime', f'{stem}.onnx'), ('OpenVINO', f'{stem}.xml')):
            found[name + suffix] = partial(ExportedDetector(folder / file, threads=1).run, arrays)
    return found


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--size', type=int, nargs=2, default=(480, 640), metavar=('H', 'W'))
    parser.add_argument('--configs', nargs=2, default=CONFIGS, metavar=('LN', 'DTN'), help="default: the demo's")
    parser.add_argument('--clock', choices=['wall', 'cpu'], default='wall', help='cpu suits a busy machine better')
    parser.add_argument('--minimum', action='store_true', help='instead of the median, on a busy machine')
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--no-compile', action='store_true', help='leave out torch.compile')
    args = parser.parse_args()
    torch.set_num_threads(1)
    images = torch.rand(1, 3, *args.size) * 255
    with tempfile.TemporaryDirectory() as folder:
        all_of_them = {
            (config, runtime): run
            for config in args.configs
            for runtime, run in contenders(config, images, Path(folder), not args.no_compile).items()
        }
        summary = min if args.minimum else statistics.median
        times = milliseconds(all_of_them, 'cpu', args.clock, float('inf'), args.rounds, summary)
    rows = []
    for runtime in dict.fromkeys(runtime for _, runtime in times):
        plain, ours = (times[config, runtime] for config in args.configs)
        row = {'runtime': runtime, 'LayerNorm, ms': f'{plain:.1f}', 'DTN, ms': f'{ours:.1f}'}
        rows.append(row | {'time relative to LayerNorm': f'{ours / plain:.2f}'})
    print_table(rows)


if __name__ == '__main__':
    main()
