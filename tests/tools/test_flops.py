"""FLOPs of attention, normalizers and detectors against numbers worked out by hand, and those that mmdet gives."""

import pytest
from flops import count_operations, forward_of
from mmdet.utils import register_all_modules
from mmengine import DefaultScope
from mmengine.hub import get_config
from mmengine.registry import MODELS

from tests.helpers.norms import NORMS, cfg_of
from tokennorm.backbones.pvt import SpatialReductionAttention
from tokennorm.layers.building import build_norm
from tokennorm.norms import DTN


def flops(module, height, width, dims):
    """Of a module that takes a grid of tokens."""
    return count_operations(lambda image: module.double()(image.new_zeros(1, height, width, dims)), (1, 1))


def test_attention():
    tokens, dims = 6 * 8, 16
    attention = SpatialReductionAttention(dims, num_heads=2, sr_ratio=1, norm_cfg=dict(type='LN'))
    projections = 4 * tokens * dims * dims
    assert flops(attention, 6, 8, dims) == projections + 2 * tokens * tokens * dims


def test_dtn():
    height, width, dims = 6, 8, 16
    norm = DTN(dims, num_heads=2)
    sums = 2 * height * width * (height + width) * dims  # P x and P (x * x), along either axis
    expected = sums + 5 * height * width * dims
    assert flops(norm, height, width, dims) == expected


@pytest.mark.parametrize(
    'name', [name for name in NORMS if name not in ('DTN', 'SyncBN', 'BN', 'PRepBN', 'SeeDNorm', 'TaperNorm')]
)
def test_other_normalizers_count_as_layer_norm(name):
    of_convolution = 9 if name == 'LocalLayerNorm' else 0
    assert flops(build_norm(cfg_of(name), 16).eval(), 6, 8, 16) == (5 + of_convolution) * 6 * 8 * 16


def build_detector(name):
    register_all_modules(init_default_scope=False)
    cfg = get_config(f'mmdet::{name}').model
    cfg.backbone.init_cfg = None
    with DefaultScope.overwrite_default_scope('mmdet'):
        return MODELS.build(cfg).eval().double()


@pytest.mark.slow
def test_retinanet_on_resnet_50_has_the_flops_that_mmdet_gives():
    """239.32 billion for an image of 800 x 1280 in mmdet's documentation, frozen batch norms among them."""
    detector = build_detector('retinanet/retinanet_r50_fpn_1x_coco.py')
    assert count_operations(forward_of(detector), (800, 1280)) == pytest.approx(239.32e9, rel=5e-3)


@pytest.mark.slow
def test_mask_rcnn_counts_its_rpn_1000_proposals_and_100_masks():
    """The RPN's convolutions in levels of strides 4 to 64, two layers a proposal, five convolutions a mask."""
    detector = build_detector('mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py')
    size = (320, 384)
    cells = sum(-(-size[0] // stride) * -(-size[1] // stride) for stride in (4, 8, 16, 32, 64))
    rpn = cells * 256 * (9 * 256 + 3 * (1 + 4))
    boxes = 1000 * (256 * 7 * 7 * 1024 + 1024 * 1024 + 1024 * (81 + 80 * 4))
    masks = 100 * (14 * 14 * 256 * (4 * 9 * 256 + 4 * 256) + 28 * 28 * 256 * 80)
    heads = count_operations(forward_of(detector), size) - count_operations(detector.extract_feat, size)
    assert heads == rpn + boxes + masks
