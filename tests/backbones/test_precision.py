"""Backbones that compute in bfloat16 or float16 inside detectors of float32."""

import pytest
import torch
from mmdet.utils import register_all_modules
from mmengine import DefaultScope
from mmengine.hub import get_config
from mmengine.registry import MODELS
from torch import nn

from tests.helpers.backbones import BACKBONES, build
from tests.helpers.cases import slow
from tests.helpers.pvt import ARCH
from tests.helpers.samples import sample_with_two_objects
from tokennorm.backbones import PVT, Swin, ViT

# Largest difference of a map, relative to its largest entry: some units in the last place of each.
TOLERANCE = {'bfloat16': 3e-2, 'float16': 4e-3}


def record_dtypes(model):
    """The dtypes that linear layers and convolutions compute in, filled as the model runs."""
    dtypes = set()
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_hook(lambda module, args, out: dtypes.add(out.dtype))
    return dtypes


CLASSIFIER = dict(out_type='cls_token', l_dtn=2, norm_cfg=dict(type='LN'))


@pytest.mark.parametrize(
    ('cls', 'kwargs', 'norm', 'dtype'),
    [
        *((cls, {}, 'DTN', 'bfloat16') for cls in BACKBONES),
        (ViT, CLASSIFIER, 'DTN', 'bfloat16'),
        (PVT, {}, 'PowerNorm', 'bfloat16'),
        *(slow(PVT, {}, norm, 'bfloat16') for norm in ('LN', 'BN', 'DyT')),
        *(slow(cls, {}, 'DTN', 'float16') for cls in (Swin, ViT)),
    ],
)
def test_maps_are_float32_and_near_those_of_float32(cls, kwargs, norm, dtype):
    kwargs = dict(token_norm_cfg=dict(type=norm), norm_cfg=dict(type=norm)) | kwargs
    exact, fast = build(cls, **kwargs), build(cls, autocast_dtype=dtype, with_cp=True, **kwargs)
    fast.load_state_dict(exact.state_dict())
    dtypes = record_dtypes(fast)
    image = torch.randn(2, 3, 75, 101)
    actual, expected = fast(image), exact(image)
    assert dtypes == {getattr(torch, dtype)}
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == torch.float32
        assert a.is_contiguous()  # mmcv's RoIAlign misreads other memory formats
        assert (a - e).abs().max() <= TOLERANCE[dtype] * e.abs().max()
        assert not torch.equal(a, e)
    sum(out.square().mean() for out in actual).backward()
    for name, p in fast.named_parameters():
        assert p.grad.dtype == torch.float32, name
        assert p.grad.isfinite().all(), name


@pytest.mark.parametrize('cls', BACKBONES)
def test_off_it_is_left_to_the_caller(cls):
    model = build(cls)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        dtypes = record_dtypes(model)
        model(torch.randn(1, 3, 32, 32))
    assert dtypes == {torch.bfloat16}


@pytest.mark.parametrize(
    ('base', 'norm'),
    [slow('retinanet/retinanet_r50_fpn_1x_coco.py', 'LN'), ('mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py', 'DTN')],
    ids=['retinanet', 'mask-rcnn'],
)
def test_detectors_train_on_a_backbone_of_bfloat16(base, norm):
    cfg = get_config(f'mmdet::{base}').model
    cfg.backbone = dict(type='tokennorm.PVT', arch=ARCH, token_norm_cfg=dict(type=norm), drop_path_rate=0.0)
    cfg.neck.in_channels = ARCH['embed_dims']
    if 'roi_head' in cfg:
        cfg.train_cfg.rpn_proposal.max_per_img = 50
        cfg.train_cfg.rcnn.sampler.num = cfg.roi_head.bbox_head.fc_out_channels = 32
    register_all_modules(init_default_scope=False)
    with DefaultScope.overwrite_default_scope('mmdet'):
        detector = MODELS.build(cfg).train()
    image = torch.randn(1, 3, 96, 128)
    losses = {}
    for dtype in (None, 'bfloat16'):
        detector.backbone.autocast_dtype = dtype
        torch.manual_seed(1)  # the proposals that are sampled
        parts = detector.loss(image, [sample_with_two_objects()])
        losses[dtype], logged = detector.parse_losses(parts)
        assert all(value.isfinite() for value in logged.values())
    assert losses['bfloat16'].dtype == torch.float32
    assert losses['bfloat16'].item() == pytest.approx(losses[None].item(), rel=0.02)
    losses['bfloat16'].backward()
    for name, p in detector.named_parameters():
        if p.requires_grad:
            assert p.grad is not None, name
            assert p.grad.isfinite().all(), name
    assert detector.backbone.stages[0].patch_embed.proj.weight.grad.abs().max() > 0
