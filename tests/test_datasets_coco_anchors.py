"""Objects against anchors: the nearest anchor by brute force, and the resizing of test pipelines."""

from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.registry import TASK_UTILS
from mmdet.structures.bbox import bbox_overlaps
from mmengine.config import Config

from tokennorm.datasets.coco.anchors import base_anchors, best_iou, fit_anchors, input_scale

CONFIGS = Path(__file__).resolve().parents[1] / 'configs'


@pytest.fixture(scope='module')
def cfg():
    return Config.fromfile(CONFIGS / 'demo' / 'retinanet_pvt-mini_fpn_bccd.py')


def test_best_iou_is_that_of_all_anchors(cfg):
    """Boxes at least one stride away from the border, where the grid of anchors has no end."""
    rng = np.random.default_rng(0)
    size = rng.uniform(8, 90, (50, 2))
    boxes = np.column_stack([rng.uniform(64, 448 - 90, (50, 2)), size])
    generator = TASK_UTILS.build(dict(cfg.model.bbox_head.anchor_generator))
    grids = [(512 // stride[0], 512 // stride[0]) for stride in generator.strides]
    anchors = torch.cat(generator.grid_priors(grids, device='cpu')).double()
    corners = torch.from_numpy(np.column_stack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]))
    expected = bbox_overlaps(corners, anchors).max(dim=1).values.numpy()
    np.testing.assert_allclose(best_iou(boxes, base_anchors(cfg)), expected, rtol=1e-6)
    assert 0.1 < expected.min() < 0.5 < expected.max()


def test_sizes_are_those_of_the_network_input(cfg):
    """The test pipeline halves 640 x 480."""
    truth = dict(
        images=[dict(id=1, width=640, height=480)],
        annotations=[
            dict(image_id=1, bbox=[100, 100, 80, 20], iscrowd=0),
            dict(image_id=1, bbox=[0, 0, 4, 4], iscrowd=0),
            dict(image_id=1, bbox=[0, 0, 600, 400], iscrowd=1),
        ],
    )
    fit = fit_anchors(cfg, truth)
    np.testing.assert_allclose(fit.object_sizes, [20, 2])
    assert fit.unmatched == 0.5
    strides = [s if isinstance(s, int) else s[0] for s in cfg.model.bbox_head.anchor_generator.strides]
    assert list(fit.anchor_sizes) == strides
    scale = cfg.model.bbox_head.anchor_generator.octave_base_scale
    assert [min(sizes) for sizes in fit.anchor_sizes.values()] == pytest.approx([scale * s for s in strides])


@pytest.mark.parametrize(
    ('step', 'expected'),
    [
        (dict(type='Resize', scale=(1333, 800), keep_ratio=True), (800 / 300, 800 / 300)),
        (dict(type='Resize', scale=(200, 100), keep_ratio=False), (0.5, 1 / 3)),
        (dict(type='mmdet.FixScaleResize', scale=(800, 600), keep_ratio=True), (2.0, 2.0)),
        (dict(type='PackDetInputs'), (1.0, 1.0)),
    ],
)
def test_input_scale(step, expected):
    cfg = Config(dict(test_dataloader=dict(dataset=dict(type='RepeatDataset', dataset=dict(pipeline=[step])))))
    assert input_scale(cfg, 400, 300) == pytest.approx(expected)


def test_a_detector_without_anchors():
    cfg = Config(dict(model=dict(type='FCOS', bbox_head=dict(type='FCOSHead'))))
    fit = fit_anchors(cfg, dict(images=[dict(id=1, width=9, height=9)], annotations=[]))
    assert (fit.anchor_sizes, fit.unmatched, len(fit.object_sizes)) == ({}, None, 0)
