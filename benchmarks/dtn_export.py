"""Time of one exported DTN layer in onnxruntime relative to LayerNorm, and the operators that take it.

    python benchmarks/dtn_export.py [--size 320 416] [--rounds 30] [--operators]

The layers are those of PVT-mini's first three stages, on one image and one thread. `DTN` is for one size without
padding, so that P is a constant of the graph; `DTN, sizes` computes P from the sizes of the images, as in exported
detectors. All run in turns in one run.
"""

import argparse
import collections
import json
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault('OMP_NUM_THREADS', '1')

import numpy as np
import onnxruntime
import torch
from measuring import CLOCKS, milliseconds, print_table
from torch import Tensor, nn

from tokennorm.backbones import PVT

STRIDES = (4, 8, 16)


class OfSizes(nn.Module):
    """A norm with the sizes of the images as an argument, (B, 2)."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, sizes: Tensor) -> Tensor:
        return self.norm(x, sizes)


def session(norm: nn.Module, inputs: tuple[Tensor, ...], path: Path, profiled: bool) -> onnxruntime.InferenceSession:
    """Returns an exported layer for inputs of these shapes."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        program = torch.export.export(norm.eval(), inputs, strict=False)
        torch.onnx.export(program, dynamo=True, opset_version=18, verbose=False).save(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.enable_profiling, options.profile_file_prefix = profiled, str(path)
    return onnxruntime.InferenceSession(str(path), options)


def runner(opened: onnxruntime.InferenceSession, inputs: tuple[Tensor, ...]) -> Callable[[], object]:
    """Returns a function that runs a layer, whose values were found to be finite."""
    feed = {one.name: value.numpy() for one, value in zip(opened.get_inputs(), inputs, strict=True)}
    assert np.isfinite(opened.run(None, feed)[0]).all()
    return partial(opened.run, None, feed)


def operators(profile: str) -> str:
    """Returns the operators of a profile with their share of the time, the largest first."""
    durations, kinds = collections.defaultdict(list), {}
    for event in json.loads(Path(profile).read_text(encoding='utf-8')):
        if event.get('cat') == 'Node' and event['name'].endswith('_kernel_time'):
            durations[event['name']].append(event['dur'])
            kinds[event['name']] = event['args']['op_name']
    shares = collections.Counter()
    for name, values in durations.items():
        shares[kinds[name]] += statistics.median(values)
    return ', '.join(f'{kind} {100 * value / shares.total():.0f}%' for kind, value in shares.most_common(8))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--size', type=int, nargs=2, default=(320, 416), metavar=('H', 'W'), help='of the image')
    parser.add_argument('--clock', choices=list(CLOCKS), default='cpu', help='cpu suits a busy machine better')
    parser.add_argument('--rounds', type=int, default=30)
    parser.add_argument('--operators', action='store_true', help="share of each operator in DTN's time")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stages = [PVT('mini', token_norm_cfg=dict(type=kind)).stages for kind in ('LN', 'DTN')]
    rows = []
    for stride, plain, ours in zip(STRIDES, *stages, strict=False):
        norms = [stage.blocks[0].norm1 for stage in (plain, ours)]
        height, width = (side // stride for side in args.size)
        x, sizes = torch.randn(1, height, width, norms[0].weight.numel()), torch.tensor([[height, width]])
        contenders = {'LN': (norms[0], (x,)), 'DTN': (norms[1], (x,)), 'DTN, sizes': (OfSizes(norms[1]), (x, sizes))}
        with tempfile.TemporaryDirectory() as folder:
            opened = {
                name: session(norm, inputs, Path(folder) / f'{name}.onnx', args.operators)
                for name, (norm, inputs) in contenders.items()
            }
            calls = {name: runner(one, contenders[name][1]) for name, one in opened.items()}
            times = milliseconds(calls, 'cpu', args.clock, float('inf'), args.rounds)
            row = {'grid': f'{height} x {width} x {x.shape[-1]}', 'pool': str(norms[1].pool)}
            row |= {f'{name}, ms': f'{value:.3f}' for name, value in times.items()}
            row |= {f'{name} / LN': f'{times[name] / times["LN"]:.1f}' for name in ('DTN', 'DTN, sizes')}
            if args.operators:
                row['operators of DTN'] = operators(opened['DTN'].end_profiling())
        rows.append(row)
    print_table(rows)


if __name__ == '__main__':
    main()
