"""Time of exported DTN relative to LayerNorm in onnxruntime or OpenVINO: one layer, or a whole backbone.

    python benchmarks/dtn_export.py [--backbone] [--openvino] [--size 320 416] [--rounds 30] [--operators]

The layers are those of PVT-mini's first three stages, on one image and one thread; `--backbone` is all of PVT-mini.
`DTN` is for one size without padding, so that P is a constant of the graph; `DTN, sizes` computes P from the sizes of
the images, as in exported detectors. All run in turns in one run, with the same random weights. docs/speed.md has
`--backbone --size 480 640 --rounds 9`.
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
    """A norm or a backbone with the sizes of the images as an argument, (B, 2)."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, sizes: Tensor) -> Tensor | tuple[Tensor, ...]:
        if not isinstance(self.module, PVT):
            return self.module(x, sizes)
        x = x.clone()
        x.image_sizes = sizes
        return self.module(x)


def write(module: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> None:
    """Exports a module for inputs of these shapes."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        program = torch.export.export(module.eval(), inputs, strict=False)
        torch.onnx.export(program, dynamo=True, opset_version=18, verbose=False).save(path)


def session(path: Path, profiled: bool) -> onnxruntime.InferenceSession:
    """Returns a file in onnxruntime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.enable_profiling, options.profile_file_prefix = profiled, str(path)
    return onnxruntime.InferenceSession(str(path), options)


def runner(path: Path, inputs: tuple[Tensor, ...], in_openvino: bool) -> Callable[[], object]:
    """Returns a function that runs a file, whose values were found to be finite."""
    arrays = [value.numpy() for value in inputs]
    if in_openvino:
        import openvino

        properties = {'INFERENCE_PRECISION_HINT': 'f32', 'INFERENCE_NUM_THREADS': 1}
        run = partial(openvino.compile_model(path, 'CPU', properties).create_infer_request().infer, arrays)
    else:
        opened = session(path, profiled=False)
        names = [value.name for value in opened.get_inputs()]
        run = partial(opened.run, None, dict(zip(names, arrays, strict=True)))
    first = run()
    assert np.isfinite(first[0]).all()
    return run


def operators(path: Path, inputs: tuple[Tensor, ...]) -> str:
    """Returns onnxruntime's operators with their share of the time, the largest first."""
    opened = session(path, profiled=True)
    feed = {one.name: value.numpy() for one, value in zip(opened.get_inputs(), inputs, strict=True)}
    for _ in range(20):
        opened.run(None, feed)
    profile = opened.end_profiling()
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
    parser.add_argument('--backbone', action='store_true', help='a whole backbone in place of its layers')
    parser.add_argument('--openvino', action='store_true', help='in OpenVINO in place of onnxruntime')
    parser.add_argument('--operators', action='store_true', help="share of each operator in DTN's time in onnxruntime")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain, ours = (PVT('mini', token_norm_cfg=dict(type=kind)) for kind in ('LN', 'DTN'))
    ours.load_state_dict(plain.state_dict(), strict=False)
    rows = []
    if args.backbone:
        rows.append(compare(plain, ours, torch.rand(1, 3, *args.size), torch.tensor([args.size]), args))
    else:
        for stride, *stages in zip(STRIDES, plain.stages, ours.stages, strict=False):
            norms = [stage.blocks[0].norm1 for stage in stages]
            size = [side // stride for side in args.size]
            x = torch.randn(1, *size, norms[0].weight.numel())
            rows.append(compare(*norms, x, torch.tensor([size]), args))
    print_table(rows)


def compare(plain: nn.Module, ours: nn.Module, x: Tensor, sizes: Tensor, args: argparse.Namespace) -> dict[str, str]:
    """One row: milliseconds with each norm, and the ratios."""
    contenders = {'LN': (plain, (x,)), 'DTN': (ours, (x,)), 'DTN, sizes': (OfSizes(ours), (x, sizes))}
    row = {'input': ' x '.join(map(str, x.shape[1:]))}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: Path(folder) / f'{name}.onnx' for name in contenders}
        for name, (module, inputs) in contenders.items():
            write(module, inputs, paths[name])
        calls = {name: runner(paths[name], inputs, args.openvino) for name, (_, inputs) in contenders.items()}
        times = milliseconds(calls, 'cpu', args.clock, float('inf'), args.rounds)
        row |= {f'{name}, ms': f'{value:.3f}' for name, value in times.items()}
        row |= {f'{name} / LN': f'{times[name] / times["LN"]:.2f}' for name in ('DTN', 'DTN, sizes')}
        if args.operators:
            row['operators of DTN'] = operators(paths['DTN'], (x,))
    return row


if __name__ == '__main__':
    main()
