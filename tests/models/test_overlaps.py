"""IoUs in parts are those of mmdet, and configs name their calculator."""

import pytest
import torch
from mmdet.models.task_modules.assigners import BboxOverlaps2D
from mmdet.registry import TASK_UTILS

from tokennorm.models.overlaps import BboxOverlapsInParts


def boxes(count, side=60.0):
    corner = torch.rand(count, 2) * 100
    return torch.cat([corner, corner + torch.rand(count, 2) * side], 1)


@pytest.mark.parametrize(('count', 'others'), [(1, 5), (70, 3000), (3, 70_000), (0, 4), (4, 0)])
def test_overlaps_are_those_of_mmdet(count, others):
    torch.manual_seed(0)
    first, second = boxes(count), boxes(others)
    first[:1, 2:] += 100
    same = min(count, others) // 2
    second[:same] = first[:same]
    second[others // 2 :, 2:] = second[others // 2 :, :2]  # without an area
    wanted, found = BboxOverlaps2D()(first, second), BboxOverlapsInParts()(first, second)
    assert found.dtype == wanted.dtype
    assert torch.equal(found, wanted)
    assert not wanted.numel() or 0 < wanted.mean() < wanted.max() <= 1


@pytest.mark.parametrize('given', [dict(mode='iof'), dict(mode='giou'), dict(is_aligned=True), dict()])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.float64])
def test_other_overlaps_are_those_of_mmdet(given, dtype):
    torch.manual_seed(0)
    first, second = boxes(6).to(dtype), boxes(6, 90).to(dtype)
    first[0] = second[0] = torch.tensor([0.5, 0.5, 0.5005, 0.5005])  # an area below eps
    for settings in (dict(), dict(scale=512.0, dtype='fp16')):
        plain, parts = BboxOverlaps2D(**settings), BboxOverlapsInParts(**settings)
        assert torch.equal(parts(first, second, **given), plain(first, second, **given))
        leaf = first.clone().requires_grad_()
        assert parts(leaf, second, **given).requires_grad
    with_scores = torch.cat([second, second[:, :1]], 1)
    assert torch.equal(BboxOverlapsInParts()(first, with_scores), BboxOverlaps2D()(first, second))


def test_configs_of_mmdet_find_the_calculator():
    assigner = dict(type='mmdet.MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.5)
    built = TASK_UTILS.build(dict(assigner, iou_calculator=dict(type='tokennorm.BboxOverlapsInParts')))
    assert type(built.iou_calculator) is BboxOverlapsInParts
