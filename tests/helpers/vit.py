"""Small ViTs, published layouts, and timm's and mmpretrain's models."""

import torch
from mmpretrain.models.backbones import VisionTransformer as MMPretrainViT
from timm.models.vision_transformer import VisionTransformer as TimmViT

from tests.helpers.norms import published_dtn
from tests.helpers.weights import randomize
from tokennorm.backbones import ViT

ARCH = dict(embed_dims=24, depth=4, num_heads=3, mlp_ratio=2)


def small_vit(**kwargs):
    return ViT(**{**dict(arch=ARCH, patch_size=8, pretrain_img_size=32, window_size=3, drop_path_rate=0.0), **kwargs})


def classifier(**kwargs):
    return small_vit(out_type='cls_token', **kwargs)


def timms_model(**kwargs):
    row = dict(embed_dim=24, depth=4, num_heads=3, mlp_ratio=2)
    return randomize(TimmViT(img_size=32, patch_size=8, num_classes=10, dynamic_img_size=True, **row, **kwargs))


def mmpretrains_model():
    row = dict(embed_dims=24, num_layers=4, num_heads=3, feedforward_channels=48)
    return randomize(MMPretrainViT(row, img_size=32, patch_size=8))


def dtn_authors_layout(model):
    """A late class token's state dict under the DTN authors' names: without biases of queries, keys and values."""
    renamed = {key: value for key, value in model.state_dict().items() if not key.endswith('qkv.bias')}
    return published_dtn(renamed) | {'head.weight': torch.randn(10, 24), 'head.bias': torch.randn(10)}
