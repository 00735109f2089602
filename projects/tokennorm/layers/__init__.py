"""Parts that several backbones share: patch embeddings, the transformer block, its MLP and stochastic depth.

Patch embeddings turn images (B, C, H, W) into token grids (B, H / p, W / p, D). `STEMS` has their names in configs.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from tokennorm.layers.building import resolve_type
from tokennorm.layers.conv_stem import ConvStem
from tokennorm.layers.dual_patch_embed import DualPatchEmbed
from tokennorm.layers.patch_embed import PatchEmbed

STEMS: dict[str, type] = {'ConvStem': ConvStem, 'DualPatchEmbed': DualPatchEmbed, 'PatchEmbed': PatchEmbed}

__all__ = ['STEMS', 'ConvStem', 'DualPatchEmbed', 'PatchEmbed', 'build_stem']


def build_stem(cfg: Mapping[str, Any] | None, **kwargs: Any) -> nn.Module:
    """Builds the patch embedding of `stem_cfg`; None is the plain one. The backbone sets `kwargs`."""
    cls, args = resolve_type(cfg or dict(type='PatchEmbed'), 'stem_cfg', STEMS, 'is_patch_embed')
    for name in ('in_channels', 'embed_dims', 'patch_size'):
        if name in args and args[name] != kwargs.get(name, args[name]):
            raise ValueError(f'stem_cfg: {name}={args[name]!r} must be {kwargs[name]}, as the backbone has it')
    return cls(**{**kwargs, **args})
