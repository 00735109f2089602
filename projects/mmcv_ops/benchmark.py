"""Processor time of the operators relative to those of a compiled mmcv, on one thread.

`python benchmark.py` in an environment with a compiled mmcv prints the ratios, elsewhere the times only; `--write` puts
them into benchmark.json, from which tables.py makes tables of README.md. `--device cuda` prints milliseconds on a GPU.
"""

import argparse
import contextlib
import json
import platform
import sys
import time
from importlib import import_module
from pathlib import Path

import mmcv.ops
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent / 'tests'))
from conftest import operators  # adds this folder
from mmcv_ops import ext

FILE = Path(__file__).with_name('benchmark.json')


def inputs(device='cpu'):
    """Yields name and function: a step of a detector's size, with the backward pass where there is one."""
    random = np.random.RandomState(0)

    def rand(*shape, scale=1.0, grad=False):
        values = torch.from_numpy(random.random_sample(shape).astype(np.float32)).to(device)
        return (values * scale).requires_grad_(grad)

    corner = rand(4000, 2, scale=800)
    boxes, scores, labels = (
        torch.cat([corner, corner + rand(4000, 2, scale=200)], 1),
        rand(4000),
        torch.arange(4000, device=device) % 5,
    )
    rois = torch.cat([torch.zeros(300, 1, device=device), boxes[:300]], 1)
    x, small = rand(1, 64, 50, 68, grad=True), rand(1, 16, 25, 34, grad=True)
    offset, mask, weight = rand(1, 18, 50, 68, grad=True), rand(1, 9, 50, 68, grad=True), rand(64, 64, 3, 3, grad=True)
    rotated = torch.cat([rand(200, 2, scale=300), rand(200, 2, scale=80) + 1, rand(200, 1, scale=3)], 1)
    regions = torch.cat([torch.zeros(100, 1, device=device), rotated[:100]], 1)
    psa = rand(1, 121, 12, 12, grad=True)
    ops = mmcv.ops
    yield 'batched NMS, 4,000 boxes', lambda: ops.batched_nms(boxes, scores, labels, dict(iou_threshold=0.5))
    yield "RoIAlign 'avg', 300 RoIs", lambda: ops.roi_align(x, rois, 7, 1 / 16, 0, 'avg', True).sum().backward()
    yield "RoIAlign 'max', 300 RoIs", lambda: ops.roi_align(x, rois, 7, 1 / 16, 2, 'max', True).sum().backward()
    yield 'deformable convolution v1', lambda: ops.deform_conv2d(x, offset, weight, 1, 1).sum().backward()
    v2 = lambda: ops.modulated_deform_conv2d(x, offset, mask, weight, None, 1, 1).sum().backward()  # noqa: E731
    yield 'deformable convolution v2', v2
    yield 'PSAMask, 12 x 12', lambda: ops.PSAMask('collect', (11, 11))(psa).sum().backward()
    yield 'rotated RoIAlign, 100 RoIs', lambda: ops.roi_align_rotated(small, regions, 7, 1 / 16, 2).sum().backward()
    refined = torch.cat([rand(1, 25, 34, 2, scale=400), rand(1, 25, 34, 3, scale=2)], -1)
    align = lambda: ops.rotated_feature_align(small, refined, 1 / 16, 5).sum().backward()  # noqa: E731
    yield 'rotated feature alignment, 5 points', align
    filters = rand(64, 64, 8, 3, 3, grad=True)
    turns = ((torch.arange(72).view(8, 3, 3, 1) + torch.arange(8)) % 72 + 1).to(device)
    yield 'rotating filters', lambda: ops.active_rotated_filter(filters, turns.int()).sum().backward()
    curves = torch.cat([torch.zeros(50, 1, device=device), rand(50, 16, scale=500)], 1)
    yield 'BezierAlign, 50 curves', lambda: ops.bezier_align(small, curves, (8, 32), 1 / 16, 2).sum().backward()
    yield from pairs(rand)


def pairs(rand):
    """Yields the operators whose work grows with pairs: boxes of 10 to 40 pixels on 1024 x 1024, from the air."""
    ops = mmcv.ops
    for n in (200, 1000, 5000):
        rotated = torch.cat([rand(n, 2, scale=1024), rand(n, 2, scale=30) + 10, rand(n, 1, scale=3)], 1)
        near = torch.cat([rand(n, 2, scale=800), rand(n, 2, scale=200)], 1)
        boxes, scores = torch.cat([near[:, :2], near[:, :2] + near[:, 2:]], 1), rand(n)
        quads = ops.diff_iou_rotated.box2corners(rotated[None])[0].flatten(1)
        points, size = quads.repeat(1, 3)[:, :18] + rand(n, 18, scale=4), f'{n:,}'
        dets = torch.cat([boxes, scores[:, None]], 1)
        yield f'NMS, {size} boxes', lambda b=boxes, s=scores: ops.nms(b, s, 0.5)
        for method in ('linear', 'naive', 'gaussian'):
            soft = lambda b=boxes, s=scores, m=method: ops.soft_nms(b, s, min_score=1e-3, method=m)  # noqa: E731
            yield f'soft NMS, {method}, {size} boxes', soft
        yield f'`nms_match`, {size} boxes', lambda d=dets: ops.nms_match(d, 0.5)
        yield f'`bbox_overlaps`, {size} x {size}', lambda b=boxes: ops.bbox_overlaps(b, b)
        yield f'rotated NMS, {size} boxes', lambda r=rotated, s=scores: ops.nms_rotated(r, s, 0.1)
        if n == 5000:  # for which compiled loops over all pairs take minutes
            return
        yield f'rotated IoU, {size} x {size}', lambda r=rotated: ops.box_iou_rotated(r, r)
        yield f'quadrilateral NMS, {size} boxes', lambda q=quads, s=scores: ops.nms_quadri(q, s, 0.1)
        yield f'quadrilateral IoU, {size} x {size}', lambda q=quads: ops.box_iou_quadri(q, q)
        centers, few = rotated[:, :2], quads[:100]
        yield f'convex IoU, {size} x 100', lambda p=points, q=few: ops.convex_iou(p, q)
        yield f'points in polygons, {size} x 100', lambda c=centers, q=few: ops.points_in_polygons(c, q)
        yield f'Chamfer distance, {size} x {size}', lambda c=centers[None]: ops.chamfer_distance(c, c)


class Recorder:
    """The operators, for one module of `mmcv.ops`: adds its name to a set where it calls one."""

    def __init__(self, module, called):
        self.module, self.called = module, called

    def __getattr__(self, name):
        self.called.add(self.module)
        return getattr(ext, name)


def modules_called(function):
    """Returns the modules of `mmcv.ops` that call an operator in a step."""
    called = set()
    with operators(ext):
        for name, module in sys.modules.items():
            if name.startswith('mmcv.ops.') and hasattr(module, 'ext_module'):
                module.ext_module = Recorder(name.rpartition('.')[2], called)
        function()
    return sorted(called)


def machine():
    """Returns versions, and the processor's name."""
    cpu = Path('/proc/cpuinfo')
    names = [line for line in cpu.read_text('utf-8').splitlines() if 'model name' in line] if cpu.exists() else []
    name = names[0].partition(':')[2].strip() if names else platform.processor()
    versions = {module.__name__: module.__version__ for module in (torch, np)} | {'mmcv': mmcv.__version__}
    return dict(python=platform.python_version(), **versions, cpu=name, threads=1)


def milliseconds(function, rounds=5, enough=2.0, clock=time.process_time):
    """Returns the shortest time of some rounds, after one that is not counted if it was short."""
    times = []
    while len(times) <= rounds and sum(times) < enough:
        start = clock()
        function()
        times.append(clock() - start)
    return min(times[1:] or times) * 1000


def device_clock():
    """Returns the seconds when a GPU has done everything."""
    torch.cuda.synchronize()
    return time.perf_counter()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])
    parser.add_argument('--write', action='store_true', help=f'writes {FILE.name}')
    args = parser.parse_args()
    if args.device == 'cuda':
        print('| step | ms on a GPU |\n|---|---|')
        for name, function in inputs('cuda'):
            print(f'| {name} | {milliseconds(function, enough=0.5, clock=device_clock):.2f} |', flush=True)
        return
    torch.set_num_threads(1)
    compiled, steps = import_module('mmcv._ext'), []
    print('| step | ms | time relative to compiled, lower is better |\n|---|---|---|')
    for name, function in inputs():
        modules, ratio, reason = modules_called(function), None, 'not measured'
        with operators(ext):
            ours = milliseconds(function)
        if not hasattr(compiled, 'MMCV_OPS'):
            reason = 'no CPU form'
            with operators(compiled), contextlib.suppress(RuntimeError):  # of operators for accelerators only
                ratio = round(ours / milliseconds(function), 2)
        steps.append(dict(step=name, modules=modules, ms=round(ours, 2), ratio=ratio if ratio else reason))
        print(f'| {name} | {ours:.1f} | {steps[-1]["ratio"]} |', flush=True)
    if args.write:
        text = ',\n'.join(f'  {json.dumps(step)}' for step in steps)
        FILE.write_text(f'{{"machine": {json.dumps(machine())},\n "steps": [\n{text}\n]}}\n', encoding='utf-8')


if __name__ == '__main__':
    main()
