"""Small Swins, their published layout, and mmdet's and timm's models."""

import torch
from mmdet.models.backbones.swin import SwinTransformer as MMDetSwin
from timm.models.swin_transformer import SwinTransformer as TimmSwin

from tests.helpers.weights import randomize
from tokennorm.backbones import Swin
from tokennorm.backbones.swin import relative_positions

ARCH = dict(embed_dims=[8, 16, 32, 64], depths=[2, 2, 1, 2], num_heads=[1, 2, 4, 8], mlp_ratios=[4, 4, 4, 4])

HOSTS_ARCH = dict(depths=ARCH['depths'], num_heads=ARCH['num_heads'], window_size=7, drop_path_rate=0.0)


def small_swin(**kwargs):
    return Swin(**{**dict(arch=ARCH, drop_path_rate=0.0), **kwargs})


def timms_model(**kwargs):
    return randomize(TimmSwin(embed_dim=8, num_classes=10, **HOSTS_ARCH, **kwargs))


def mmdets_model():
    return randomize(MMDetSwin(embed_dims=8, **HOSTS_ARCH))


def published_layout(model, classifier):
    """The model's state dict under the Swin authors' names, with what they have beside it."""
    renamed = {}
    for key, value in model.state_dict().items():
        _, stage, kind, rest = key.split('.', 3)
        if kind == 'norm' and not classifier:
            renamed[f'norm{stage}.{rest}'] = value
        elif kind == 'patch_embed':
            renamed[f'patch_embed.{rest}' if stage == '0' else f'layers.{int(stage) - 1}.downsample.{rest}'] = value
        elif kind == 'blocks':
            renamed[f'layers.{stage}.{kind}.{rest}'] = value
    renamed['layers.0.blocks.0.attn.relative_position_index'] = relative_positions(7)
    if classifier:
        extra = {'norm.weight': (64,), 'norm.bias': (64,), 'head.weight': (10, 64), 'head.bias': (10,)}
        renamed |= {key: torch.randn(shape) for key, shape in extra.items()}
        renamed['layers.0.blocks.1.attn_mask'] = torch.zeros(64, 49, 49)
    return renamed
