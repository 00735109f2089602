"""Inputs for mmcv's functions, and what its compiled operators return for them.

`python mmcv_cases.py` writes compiled.npz, in an environment with a compiled mmcv.
"""

from pathlib import Path

import numpy as np
import torch

FILE = Path(__file__).with_name('compiled.npz')
CASES = {}


def case(*parameters):
    def register(function):
        for args in parameters or [()]:
            CASES['-'.join([function.__name__, *map(str, args)])] = lambda ops, args=args: function(ops, *args)
        return function

    return register


def random(*shape, seed=0, scale=1.0, grad=True):
    """Returns uniform numbers in [0, scale): the stream of RandomState does not change between versions of numpy."""
    values = np.random.RandomState(seed).random_sample(shape).astype(np.float32) * np.float32(scale)
    return torch.from_numpy(values).requires_grad_(grad)


def boxes(n, size=100, seed=1):
    corner, side = random(n, 2, seed=seed, scale=size, grad=False), random(n, 2, seed=seed + 1, grad=False)
    return torch.cat([corner, corner + side * size / 2 + 1], 1)


def rois(n, size=100, images=2, seed=1):
    return torch.cat([(torch.arange(n) % images).float()[:, None], boxes(n, size, seed)], 1)


def rotated_boxes(n, size=20, seed=1):
    parts = (
        random(n, 2, seed=seed, scale=size),
        random(n, 2, seed=seed + 1, scale=size / 2),
        random(n, 1, seed=seed + 2),
    )
    return torch.cat([parts[0], parts[1] + 1, parts[2] * 6 - 3], 1).detach()


def gradients(output, **inputs):
    """Returns the output and the gradients of a weighted sum of it."""
    weights = torch.linspace(-1, 1, output.numel()).view_as(output)
    grads = torch.autograd.grad((output * weights).sum(), list(inputs.values()))
    return dict(output=output, **{f'grad_{name}': grad for name, grad in zip(inputs, grads, strict=True)})


@case(
    *[
        (n, threshold, offset, ties)
        for n in (1, 200)
        for threshold in (0.3, 0.5)
        for offset in (0, 1)
        for ties in (0, 1)
    ]
)
def nms(ops, n, threshold, offset, ties):
    scores = random(n, seed=3, grad=False)
    scores = (scores * 10).round() / 10 if ties else scores
    dets, kept = ops.nms(boxes(n), scores, threshold, offset=offset)
    return dict(dets=dets, kept=kept)


@case()
def nms_score_threshold(ops):
    dets, kept = ops.nms(boxes(50), random(50, seed=3, grad=False), 0.5, score_threshold=0.3, max_num=7)
    return dict(dets=dets, kept=kept)


@case((10000, 'nms'), (40, 'nms'), (10000, 'soft_nms'), (40, 'soft_nms'))
def batched_nms(ops, split, kind):
    labels = torch.arange(120) % 3
    cfg = dict(type=kind, iou_threshold=0.3, split_thr=split)
    dets, kept = ops.batched_nms(boxes(120), random(120, seed=3, grad=False), labels, cfg)
    return dict(dets=dets, kept=kept)


@case(*[(method, offset, ties) for method in ('naive', 'linear', 'gaussian') for offset in (0, 1) for ties in (0, 1)])
def soft_nms(ops, method, offset, ties):
    scores = random(120, seed=3, grad=False)
    scores = (scores * 10).round() / 10 if ties else scores
    dets, kept = ops.soft_nms(boxes(120), scores, 0.3, min_score=0.05, method=method, offset=offset)
    return dict(dets=dets, kept=kept)


@case((0.3,), (0.6,))
def nms_match(ops, threshold):
    dets = torch.cat([boxes(80), (random(80, 1, seed=3, grad=False) * 20).round() / 20], 1)
    groups = ops.nms_match(dets, threshold)
    return dict(groups=torch.cat(groups), lengths=torch.tensor([len(group) for group in groups]))


@case(*[(mode, ratio, aligned) for mode in ('avg', 'max') for ratio in (0, 2) for aligned in (False, True)])
def roi_align(ops, mode, ratio, aligned):
    x = random(2, 3, 10, 12)
    return gradients(ops.roi_align(x, rois(14), (3, 2), 0.11, ratio, mode, aligned), x=x)


@case((1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2))
def deform_conv(ops, stride, dilation, groups, deform_groups):
    x, weight = random(2, 4, 7, 6), random(4, 4 // groups, 3, 3, seed=1)
    h, w = (7 - 1) // stride + 1, (6 - 1) // stride + 1
    offset = (random(2, deform_groups * 18, h, w, seed=2, grad=False) * 5 - 2.5).requires_grad_()
    output = ops.deform_conv2d(x, offset, weight, stride, dilation, dilation, groups, deform_groups)
    return gradients(output, x=x, offset=offset, weight=weight)


@case((1, 1, 1, 1, True), (2, 1, 1, 1, False), (1, 2, 2, 2, True))
def modulated_deform_conv(ops, stride, dilation, groups, deform_groups, with_bias):
    x, weight = random(2, 4, 7, 6), random(4, 4 // groups, 3, 3, seed=1)
    h, w = (7 - 1) // stride + 1, (6 - 1) // stride + 1
    offset = (random(2, deform_groups * 18, h, w, seed=2, grad=False) * 5 - 2.5).requires_grad_()
    mask = random(2, deform_groups * 9, h, w, seed=3)
    inputs = dict(x=x, offset=offset, mask=mask, weight=weight)
    if with_bias:
        inputs['bias'] = random(4, seed=4)
    output = ops.modulated_deform_conv2d(
        x, offset, mask, weight, inputs.get('bias'), stride, dilation, dilation, groups, deform_groups
    )
    return gradients(output, **inputs)


@case((False,), (True,))
def deform_conv_rectangular(ops, modulated):
    """Every pair of numbers is (vertical, horizontal), and no pair has two equal ones."""
    shapes = dict(x=(2, 4, 7, 6), offset=(2, 12, 3, 6), weight=(4, 4, 3, 2), mask=(2, 6, 3, 6))
    x, offset, weight, mask = (random(*shape, seed=i) for i, shape in enumerate(shapes.values()))
    sizes = (2, 1), (0, 1), (1, 2)  # stride, padding, dilation
    if modulated:
        output = ops.modulated_deform_conv2d(x, offset, mask, weight, None, *sizes)
        return gradients(output, x=x, offset=offset, weight=weight, mask=mask)
    return gradients(ops.deform_conv2d(x, offset, weight, *sizes), x=x, offset=offset, weight=weight)


@case(('collect',), ('distribute',))
def psa_mask(ops, kind):
    x = random(2, 15, 4, 5)
    return gradients(ops.PSAMask(kind, (3, 5))(x), x=x)


@case(
    *[(mode, aligned, clockwise) for mode in ('iou', 'iof') for aligned in (False, True) for clockwise in (False, True)]
)
def box_iou_rotated(ops, mode, aligned, clockwise):
    return dict(ious=ops.box_iou_rotated(rotated_boxes(25), rotated_boxes(25, seed=5), mode, aligned, clockwise))


@case((0.1,), (0.4,))
def nms_rotated(ops, threshold):
    dets, kept = ops.nms_rotated(rotated_boxes(60), random(60, seed=7, grad=False), threshold)
    return dict(dets=dets, kept=kept)


@case(*[(ratio, aligned, clockwise) for ratio in (0, 2) for aligned in (False, True) for clockwise in (False, True)])
def roi_align_rotated(ops, ratio, aligned, clockwise):
    x = random(2, 3, 10, 12)
    regions = torch.cat([(torch.arange(12) % 2).float()[:, None], rotated_boxes(12, 100)], 1)
    return gradients(ops.roi_align_rotated(x, regions, (3, 2), 0.11, ratio, aligned, clockwise), x=x)


@case(*[(mode, aligned, offset) for mode in ('iou', 'iof') for aligned in (False, True) for offset in (0, 1)])
def bbox_overlaps(ops, mode, aligned, offset):
    return dict(ious=ops.bbox_overlaps(boxes(20), boxes(20, seed=5), mode, aligned, offset))


def rectangles(n, size=20, seed=1):
    """Corners (N, 8) of rotated boxes, in both directions."""
    x, y, w, h, angle = rotated_boxes(n, size, seed).T
    corners = [
        (x + i * w / 2 * angle.cos() - j * h / 2 * angle.sin(), y + i * w / 2 * angle.sin() + j * h / 2 * angle.cos())
        for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
    quads = torch.stack([torch.stack(corner, 1) for corner in corners], 1)
    return torch.where(torch.arange(n)[:, None, None] % 3 == 0, quads.flip(1), quads).flatten(1)  # fmt: skip


@case(*[(mode, aligned) for mode in ('iou', 'iof') for aligned in (False, True)])
def box_iou_quadri(ops, mode, aligned):
    """Rectangles: mmcv's test of corners inside the other one is right for these only."""
    return dict(ious=ops.box_iou_quadri(rectangles(25), rectangles(25, seed=5), mode, aligned))


@case((0.1,), (0.4,))
def nms_quadri(ops, threshold):
    dets, kept = ops.nms_quadri(rectangles(60), random(60, seed=7, grad=False), threshold)
    return dict(dets=dets, kept=kept)


@case((1, 8), (3, 8), (3, 4))
def active_rotated_filter(ops, kernel, rotations):
    order = np.random.RandomState(1)
    taps = 4 * kernel * kernel
    indices = np.stack([order.permutation(taps) + 1 for _ in range(rotations)], 1).reshape(4, kernel, kernel, rotations)
    weight = random(3, 2, 4, kernel, kernel)
    output = ops.active_rotated_filter(weight, torch.from_numpy(indices).int())
    return gradients(output, weight=weight)


@case((1,), (5,))
def rotated_feature_align(ops, points):
    x = random(2, 3, 5, 6)
    refined = rotated_boxes(60, 50).view(2, 5, 6, 5)
    return gradients(ops.rotated_feature_align(x, refined, 0.12, points), x=x)


@case(*[(ratio, aligned) for ratio in (0, 2) for aligned in (False, True)])
def bezier_align(ops, ratio, aligned):
    x = random(2, 3, 10, 12)
    curves = torch.cat([(torch.arange(7) % 2).float()[:, None], random(7, 16, seed=4, scale=90, grad=False)], 1)
    return gradients(ops.bezier_align(x, curves, (3, 4), 0.11, ratio, aligned), x=x)


def text_kernels(seed=3):
    """Labels (24, 30) of a few blocks, and a mask in which they may grow."""
    labels = torch.zeros(24, 30, dtype=torch.int)
    for label, (y, x, h, w) in enumerate(
        [(2, 2, 4, 5), (3, 14, 3, 6), (13, 4, 5, 3), (15, 17, 2, 9), (22, 1, 1, 1)], 1
    ):
        labels[y : y + h, x : x + w] = label
    return labels, random(24, 30, seed=seed, grad=False) < 0.75


@case((0,), (2,))
def contour_expand(ops, area):
    labels, _ = text_kernels()
    masks = torch.stack([text_kernels(seed)[1] | (labels > 0) for seed in (3, 4, 5)] + [labels > 0]).to(torch.uint8)
    return dict(labels=torch.tensor(ops.contour_expand(masks, labels, area, 5)))


@case((0.6,), (0.9,))
def pixel_group(ops, distance):
    labels, mask = text_kernels()
    embedding, contour = random(24, 30, 4, seed=6, grad=False), (labels > 0).to(torch.uint8)
    score = random(24, 30, seed=7, grad=False)
    regions = ops.pixel_group(score, mask, embedding, labels, contour, 6, distance)
    return dict(
        regions=torch.tensor([value for r in regions for value in r]), sizes=torch.tensor([len(r) for r in regions])
    )


# Inputs at which functions have a kink or a jump: places on pixels, borders and beyond, boxes that touch, are equal or
# have no area, equal scores, angles of 0, 90 and 180 degrees.

_TOUCHING = torch.tensor(
    [
        [0, 0, 10, 10], [0, 0, 10, 10], [10, 0, 20, 10], [10, 10, 20, 20], [0, 0, 10, 5], [0, 5, 10, 10], [0, 0, 5, 5],
        [5, 5, 5, 5], [5, 5, 5, 10], [0, 0, 0, 0], [0, 0, 10, 20], [-10, -10, 0, 0], [9, 9, 11, 11], [0, 0, 30, 30.0],
    ]
)  # fmt: skip
_ON_PIXELS = torch.tensor(
    [
        [0, 0, 0, 6, 5], [0, -1, -1, 6, 5], [0, 0, 0, 0, 0], [1, 2, 2, 2, 4], [1, 1, 1, 4, 4], [1, 6, 5, 8, 7],
        [1, 5, 4, 6, 5], [0, -3, -3, -1, -1], [0, 0.5, 0.5, 5.5, 4.5], [1, 5.5, 0, 7.5, 4],
    ]
)  # fmt: skip
_TIES = {'equal': torch.ones(14), 'levels': torch.arange(14.0) % 3 / 3 + 0.1}


def _upright(turns):
    """Returns _TOUCHING as rotated boxes (14, 5), turned by `turns` x 90 degrees."""
    center, side = (_TOUCHING[:, :2] + _TOUCHING[:, 2:]) / 2, _TOUCHING[:, 2:] - _TOUCHING[:, :2]
    return torch.cat([center, side, torch.full((14, 1), turns * torch.pi / 2)], 1)


@case(
    *[
        (function, threshold, offset)
        for function in ('nms', 'soft_nms', 'nms_match', 'nms_rotated')
        for threshold in (0.0, 0.25, 0.5, 1.0)
        for offset in (0, 1)
    ]
)
def nms_kinks(ops, function, threshold, offset):
    found = {}
    for name, scores in _TIES.items():
        if function == 'nms_match':
            groups = ops.nms_match(torch.cat([_TOUCHING, scores[:, None]], 1), threshold)
            found[name] = torch.tensor([i for group in groups for i in (*group.tolist(), -1)])
        elif function == 'nms_rotated':
            found[name] = ops.nms_rotated(_upright(offset), scores, threshold)[1]
        else:
            arguments = dict(method='linear', min_score=0.01) if function == 'soft_nms' else {}
            dets, found[name] = getattr(ops, function)(_TOUCHING, scores, threshold, offset=offset, **arguments)
            found[f'{name}_dets'] = dets
    return found


@case(*[(mode, turns) for mode in ('iou', 'iof') for turns in (0, 1, -1)])
def iou_kinks(ops, mode, turns):
    ious = dict(rotated=ops.box_iou_rotated(_upright(0), _upright(turns), mode))
    return ious | dict(upright=ops.bbox_overlaps(_TOUCHING, _TOUCHING.flip(0), mode, False, turns % 2))


@case(*[(mode, ratio, aligned) for mode in ('avg', 'max') for ratio in (0, 1, 2) for aligned in (False, True)])
def roi_align_kinks(ops, mode, ratio, aligned):
    """Mode 'max' without RoIs of size 0, and without samples at -1: compiled takes their place for no sample."""
    regions = _ON_PIXELS if mode == 'avg' else _ON_PIXELS[[0, 4, 5, 6, 8, 9]]
    found = {}
    for name, x in (('random', random(2, 3, 5, 6)), ('equal', torch.ones(2, 3, 5, 6, requires_grad=True))):
        values = gradients(ops.roi_align(x, regions, 2, 1.0, ratio, mode, aligned), x=x)
        found |= {f'{name}_{key}': value for key, value in values.items()}
    return found


@case(*[(kind, turns) for kind in ('rotated', 'align', 'bezier') for turns in (0, 1, 2, 3)])
def place_kinks(ops, kind, turns):
    x = random(2, 3, 5, 6)
    image, corner, side = _ON_PIXELS[:, :1], _ON_PIXELS[:, 1:3], _ON_PIXELS[:, 3:] - _ON_PIXELS[:, 1:3]
    angle = torch.full_like(image, turns * torch.pi / 2)
    if kind == 'rotated':
        regions = torch.cat([image, corner + side / 2, side, angle], 1)
        output = ops.roi_align_rotated(x, regions, 2, 1.0, turns % 2 * 2, turns < 2)
    elif kind == 'align':
        order = torch.arange(60)
        values = torch.stack([order % 9 - 1, order % 8 - 1, order % 3 * 2, order % 4 * 2], 1)
        regions = torch.cat([values, angle[:1].expand(60, 1)], 1).view(2, 5, 6, 5)
        output = ops.rotated_feature_align(x, regions, 1.0, 5)
    else:
        part = torch.linspace(0, 1, 4)[:, None]
        upper = corner[:, None] + part * side[:, None] * torch.tensor([1.0, 0])
        lower = (upper + side[:, None] * torch.tensor([0, 1.0])).flip(1)
        curves = torch.cat([image, torch.cat([upper, lower], 1).flatten(1)], 1)
        output = ops.bezier_align(x, curves, 2, 1.0, turns % 2 * 2, turns < 2)
    return gradients(output, x=x)


@case(*[(kind, version) for kind in ('zero', 'pixels', 'halves', 'rounded') for version in (1, 2)])
def deform_conv_kinks(ops, kind, version):
    """Offsets with which samples are on pixels, at -1, at H and W, between two pixels, and -1 after rounding only."""
    steps = torch.from_numpy(np.random.RandomState(0).randint(-6, 7, (2, 24, 3, 6))).float()
    offset = (steps * dict(zero=0, pixels=1, halves=0.5, rounded=1e-8)[kind]).requires_grad_()
    x, weight, mask = random(2, 4, 5, 6), random(4, 4, 3, 2, seed=1), random(2, 12, 3, 6, seed=3)
    sizes = (2, 1), (1, 1), (1, 2), 1, 2  # stride, padding, dilation, groups
    inputs = dict(x=x, offset=offset, weight=weight)
    if version == 1:
        return gradients(ops.deform_conv2d(x, offset, weight, *sizes), **inputs)
    return gradients(ops.modulated_deform_conv2d(x, offset, mask, weight, None, *sizes), mask=mask, **inputs)


@case((1,), (2,))
def deform_conv_first_step(ops, version):
    """The layer starts with offsets of 0."""
    layer = (ops.DeformConv2dPack if version == 1 else ops.ModulatedDeformConv2dPack)(4, 4, 3, padding=1)
    with torch.no_grad():
        layer.weight.copy_(random(4, 4, 3, 3, seed=1))
    parameters = {name.replace('.', '_'): p for name, p in layer.named_parameters() if name != 'bias'}
    return gradients(layer(random(2, 4, 5, 6, grad=False)), **parameters)


def run(name, ops):
    """Returns the arrays of a case."""
    return {key: value.detach().cpu().numpy() for key, value in CASES[name](ops).items()}


if __name__ == '__main__':
    import mmcv.ops
    from mmcv import _ext

    assert _ext.__file__.endswith(('.so', '.pyd')), 'this mmcv has no compiled operators'
    np.savez_compressed(FILE, **{f'{name}/{key}': v for name in CASES for key, v in run(name, mmcv.ops).items()})
    print(FILE, FILE.stat().st_size)
