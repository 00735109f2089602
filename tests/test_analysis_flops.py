"""mmengine's counter counts attention and DTN, and counting from shapes alone gives what it gives."""

import pytest
from mmdet.utils import register_all_modules
from mmengine import DefaultScope
from mmengine.analysis import get_model_complexity_info
from mmengine.hub import get_config
from mmengine.registry import MODELS

from tests.helpers.backbones import PYRAMIDS, build
from tests.helpers.cases import slow
from tests.helpers.norms import NORMS, cfg_of
from tests.helpers.vit import small_vit
from tokennorm.analysis.flops import count_attention_and_norms, count_operations, forward_of
from tokennorm.backbones import Swin
from tokennorm.backbones.pvt import SpatialReductionAttention
from tokennorm.builder import build_norm
from tokennorm.norms import DTN


def flops(model, shape):
    count_attention_and_norms()
    return get_model_complexity_info(model, shape, show_table=False, show_arch=False)['flops']


def test_attention():
    tokens, dims = 6 * 8, 16
    attention = SpatialReductionAttention(dims, num_heads=2, sr_ratio=1, norm_cfg=dict(type='LN'))
    projections = 4 * tokens * dims * dims
    assert flops(attention, (6, 8, dims)) == projections + 2 * tokens * tokens * dims


def test_dtn():
    height, width, dims = 6, 8, 16
    norm = DTN(dims, num_heads=2)
    sums = 2 * height * width * (height + width) * dims  # P x and P (x * x), along either axis
    expected = sums + 5 * height * width * dims
    assert flops(norm, (height, width, dims)) == expected


@pytest.mark.parametrize('name', [name for name in NORMS if name not in ('DTN', 'SyncBN')])
def test_other_normalizers_count_as_layer_norm(name):
    norm = build_norm(cfg_of(name), 16).eval()
    # mmengine counts a batch norm in eval mode as one scale and one shift, and FlopCounterMode does not count it.
    is_batch_norm = name in ('BN', 'PRepBN')
    expected = (2 if is_batch_norm else 5) * 6 * 8 * 16
    assert flops(norm, (6, 8, 16)) == expected
    if not is_batch_norm:
        assert count_operations(lambda image: norm.double()(image.reshape(1, 6, 8, 16)), (16, 16)) == expected


@pytest.mark.parametrize('norm', ['LN', slow('DTN')])
@pytest.mark.parametrize('cls', [slow(cls) if cls is not Swin else cls for cls in PYRAMIDS] + ['ViT'])
def test_counting_from_shapes_is_counting_a_forward_pass(cls, norm):
    """At 64 x 64, where PVT's positions are not resized: mmengine counts that."""
    options = dict(token_norm_cfg=dict(type=norm), stem_cfg=dict(type='DualPatchEmbed'))
    backbone = (small_vit(rel_pos=8, **options) if cls == 'ViT' else build(cls, **options)).eval()
    expected = flops(backbone, (3, 64, 64))
    assert count_operations(backbone.double(), (64, 64)) == pytest.approx(expected, rel=1e-3)  # it rounds einsum's


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
