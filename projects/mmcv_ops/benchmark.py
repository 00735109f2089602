"""Processor time of the operators relative to those of a compiled mmcv, on one thread.

`python benchmark.py` in an environment with a compiled mmcv prints the table of README.md, elsewhere the times only.
"""

import contextlib
import sys
import time
from importlib import import_module
from pathlib import Path

import mmcv.ops
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from mmcv_ops import ext


def inputs():
    """Yields name and function: a step of a detector's size, with the backward pass where there is one."""
    random = np.random.RandomState(0)

    def rand(*shape, scale=1.0, grad=False):
        return (torch.from_numpy(random.random_sample(shape).astype(np.float32)) * scale).requires_grad_(grad)

    corner = rand(4000, 2, scale=800)
    boxes, scores, labels = (
        torch.cat([corner, corner + rand(4000, 2, scale=200)], 1),
        rand(4000),
        torch.arange(4000) % 5,
    )
    rois = torch.cat([torch.zeros(300, 1), boxes[:300]], 1)
    x, small = rand(1, 64, 50, 68, grad=True), rand(1, 16, 25, 34, grad=True)
    offset, mask, weight = rand(1, 18, 50, 68, grad=True), rand(1, 9, 50, 68, grad=True), rand(64, 64, 3, 3, grad=True)
    rotated = torch.cat([rand(200, 2, scale=300), rand(200, 2, scale=80) + 1, rand(200, 1, scale=3)], 1)
    regions = torch.cat([torch.zeros(100, 1), rotated[:100]], 1)
    psa = rand(1, 121, 12, 12, grad=True)
    ops = mmcv.ops
    yield 'batched NMS, 4,000 boxes', lambda: ops.batched_nms(boxes, scores, labels, dict(iou_threshold=0.5))
    yield 'soft NMS, 500 boxes', lambda: ops.soft_nms(boxes[:500], scores[:500])
    yield '`nms_match`, 1,000 boxes', lambda: ops.nms_match(torch.cat([boxes, scores[:, None]], 1)[:1000], 0.5)
    yield "RoIAlign 'avg', 300 RoIs", lambda: ops.roi_align(x, rois, 7, 1 / 16, 0, 'avg', True).sum().backward()
    yield "RoIAlign 'max', 300 RoIs", lambda: ops.roi_align(x, rois, 7, 1 / 16, 2, 'max', True).sum().backward()
    yield 'deformable convolution v1', lambda: ops.deform_conv2d(x, offset, weight, 1, 1).sum().backward()
    v2 = lambda: ops.modulated_deform_conv2d(x, offset, mask, weight, None, 1, 1).sum().backward()  # noqa: E731
    yield 'deformable convolution v2', v2
    yield 'PSAMask, 12 x 12', lambda: ops.PSAMask('collect', (11, 11))(psa).sum().backward()
    yield 'rotated IoU, 200 x 200', lambda: ops.box_iou_rotated(rotated, rotated)
    yield 'rotated NMS, 200 boxes', lambda: ops.nms_rotated(rotated, scores[:200], 0.1)
    yield 'rotated RoIAlign, 100 RoIs', lambda: ops.roi_align_rotated(small, regions, 7, 1 / 16, 2).sum().backward()


@contextlib.contextmanager
def operators(module):
    modules = [m for name, m in sys.modules.items() if name.startswith('mmcv.ops.') and hasattr(m, 'ext_module')]
    before = [m.ext_module for m in modules]
    for m in modules:
        m.ext_module = module
    yield
    for m, old in zip(modules, before, strict=True):
        m.ext_module = old


def milliseconds(function, rounds=5):
    """Returns the shortest processor time of some rounds, after one that is not counted."""
    times = []
    for _ in range(rounds + 1):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times[1:]) * 1000


def main():
    torch.set_num_threads(1)
    compiled = import_module('mmcv._ext')
    print('| step | ms | time relative to compiled, lower is better |\n|---|---|---|')
    for name, function in inputs():
        with operators(ext):
            ours = milliseconds(function)
        ratio = 'not compiled here'
        if not hasattr(compiled, 'MMCV_OPS'):
            with operators(compiled):
                ratio = f'{ours / milliseconds(function):.2f}'
        print(f'| {name} | {ours:.1f} | {ratio} |', flush=True)


if __name__ == '__main__':
    main()
