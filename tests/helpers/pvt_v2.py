"""Small PVTv2s, their published layout, and mmdet's and timm's models."""

import torch
from mmdet.models.backbones.pvt import PyramidVisionTransformerV2 as MMDetPVTv2
from timm.models.pvt_v2 import PyramidVisionTransformerV2 as TimmPVTv2

from tests.helpers.pvt import ARCH
from tests.helpers.weights import randomize
from tokennorm.backbones import PVTv2


def small_pvt_v2(**kwargs):
    return PVTv2(**{**dict(arch=ARCH, drop_path_rate=0.0), **kwargs})


def timms_model(linear=False):
    return randomize(TimmPVTv2(**ARCH, linear=linear, num_classes=10))


def mmdets_model():
    arch = {key: ARCH[key] for key in ('num_heads', 'mlp_ratios', 'sr_ratios')}
    return randomize(MMDetPVTv2(embed_dims=8, num_layers=ARCH['depths'], drop_path_rate=0.0, **arch))


def published_layout(model):
    """The model's state dict under the PVTv2 authors' names, with what a classifier has beside it."""
    renamed = {}
    for key, value in model.state_dict().items():
        _, stage, kind, *rest = key.split('.')
        kind = 'block' if kind == 'blocks' else kind
        renamed['.'.join([f'{kind}{int(stage) + 1}', *rest]).replace('dwconv', 'dwconv.dwconv')] = value
    return renamed | {'head.weight': torch.randn(10, 64), 'head.bias': torch.randn(10)}
