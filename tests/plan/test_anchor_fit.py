"""Anchors compared with objects: against every anchor of the grid, and by hand."""

import numpy as np
import pytest
import torch
from mmdet.registry import TASK_UTILS
from mmdet.structures.bbox import bbox_overlaps

from tests.helpers.configs import RETINA, anchors_config
from tokennorm.plan.anchor_fit import anchor_fit, unmatched

SSD = dict(
    type='SSDAnchorGenerator',
    scale_major=False,
    input_size=300,
    basesize_ratio_range=(0.15, 0.9),
    strides=[8, 16, 32, 64, 100, 300],
    ratios=[[2], [2, 3], [2, 3], [2, 3], [2], [2]],
)
YOLO = dict(type='YOLOAnchorGenerator', base_sizes=[[(60, 45), (90, 90)], [(10, 13), (30, 23)]], strides=[32, 8])
RPN = dict(type='AnchorGenerator', scales=[8], ratios=[0.5, 1.0, 2.0], strides=[4, 8, 16, 32, 64])


@pytest.mark.parametrize('generator', [RETINA, RPN, SSD, YOLO], ids=['retinanet', 'rpn', 'ssd', 'yolo'])
def test_the_share_is_that_of_all_anchors_of_the_grid(generator):
    rng = np.random.default_rng(0)
    height, width, count = 192, 256, 300
    size = np.exp(rng.uniform(np.log(4), np.log(180), (count, 2)))
    corner = rng.uniform(0, 1, (count, 2)) * (np.array([width, height]) - np.minimum(size, [width, height]))
    boxes = np.hstack([corner, np.minimum(size, [width, height])])
    built = TASK_UTILS.build({'_scope_': 'mmdet', **generator})
    sizes = [(-(-height // s[1]), -(-width // s[0])) for s in built.strides]
    anchors = torch.cat(built.grid_priors(sizes, device='cpu')).double()
    corners = torch.from_numpy(np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]]))
    expected = (bbox_overlaps(corners, anchors).amax(1) < 0.5).double().mean().item()
    assert 0.05 < expected < 0.95
    assert unmatched(generator, boxes, np.tile([width, height], (count, 1))) == pytest.approx(expected)


def test_anchors_beyond_the_last_point_of_the_grid_match_nothing():
    """Points of a grid of stride 32 over 64 pixels are 0 and 32: an anchor around 64 would match the object."""
    generator = dict(type='AnchorGenerator', scales=[1], ratios=[1.0], strides=[32])
    objects = dict(right=[48, 16, 16, 32], bottom=[16, 48, 32, 16], inside=[16, 16, 32, 32])
    images = [dict(id=1, width=64, height=64)]
    for name, box in objects.items():
        annotations = [dict(id=1, image_id=1, category_id=1, bbox=box, iscrowd=0)]
        fit = anchor_fit(anchors_config(generator, scale=(64, 64)), dict(images=images, annotations=annotations))
        assert fit.unmatched == (name != 'inside'), name


def content(sides, image=(1000, 800)):
    annotations = [
        dict(id=i, image_id=1, category_id=1, bbox=[64.0 - side / 2, 64.0 - side / 2, side, side], iscrowd=0)
        for i, side in enumerate(sides)
    ]
    crowd = dict(id=99, image_id=1, category_id=1, bbox=[0, 0, 900, 900], iscrowd=1)
    flat = dict(id=100, image_id=1, category_id=1, bbox=[0, 0, 0, 900], iscrowd=0)  # mmdet leaves it out
    return dict(images=[dict(id=1, width=image[0], height=image[1])], annotations=[*annotations, crowd, flat])


def test_small_objects_get_a_smaller_scale():
    fit = anchor_fit(anchors_config(), content([8, 8, 40, 100]))
    assert fit.sizes.tolist() == [8, 8, 40, 100]
    assert fit.unmatched == 0.5
    assert fit.key == 'model.bbox_head.anchor_generator.octave_base_scale'
    assert dict(fit.better)[1] == 0.0
    assert 'anchors match 50.0% of the boxes at IoU 0.5, in' in fit.summary()
    assert 'warning' not in anchor_fit(anchors_config(), content([32, 40, 100])).summary()


@pytest.mark.parametrize('generator', [SSD, YOLO], ids=['ssd', 'yolo'])
def test_anchors_that_have_no_scales_are_only_described(generator):
    fit = anchor_fit(anchors_config(generator), content([2, 2]))
    assert (fit.unmatched, fit.better, fit.is_poor) == (1, (), False)
    assert f'(model.bbox_head.anchor_generator={generator["type"]})' in fit.summary()


def test_sizes_are_those_after_resizing():
    fit = anchor_fit(anchors_config(scale=(1333, 400)), content([8, 40]))
    assert fit.sizes.tolist() == [4, 20]
    assert anchor_fit(anchors_config(generator=None), content([8])) is None
    assert anchor_fit(anchors_config(), content([])) is None
