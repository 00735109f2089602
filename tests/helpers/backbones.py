"""Small backbones of all four architectures."""

from torch import nn

from tokennorm.backbones import PVT, PVTv2, Swin, ViT
from tokennorm.layers.block import Block

ARCH = dict(embed_dims=[8, 16, 24], depths=[2, 2, 1], num_heads=[1, 2, 4], mlp_ratios=[2, 2, 1])

SR_RATIOS = dict(sr_ratios=[4, 2, 1])

PYRAMIDS = {
    PVT: dict(arch=ARCH | SR_RATIOS, pretrain_img_size=64),
    PVTv2: dict(arch=ARCH | SR_RATIOS),
    Swin: dict(arch=ARCH, window_size=4),
}

FOUR_STAGES = dict(embed_dims=(16, 32, 64, 128), depths=(1,) * 4, num_heads=(1, 2, 4, 8), mlp_ratios=(2,) * 4)

THREE_BLOCKS = dict(embed_dims=36, depth=3, num_heads=4, mlp_ratio=2)

VIT_ARCH = dict(embed_dims=24, depths=4, num_heads=3, mlp_ratios=2)

BACKBONES = PYRAMIDS | {ViT: dict(arch=VIT_ARCH, patch_size=8, pretrain_img_size=32, window_size=3)}


def build(cls, **kwargs):
    return cls(**{**BACKBONES[cls], 'drop_path_rate': 0.0, **kwargs})


def parts(model: nn.Module) -> nn.ModuleList:
    """What `frozen_stages` counts: the stages of a pyramid, the blocks of a ViT."""
    return model.blocks if isinstance(model, ViT) else model.stages


def blocks(model: nn.Module) -> list[Block]:
    return [module for module in model.modules() if isinstance(module, Block)]
