"""Parts that several backbones share: patch embeddings, the transformer block, its MLP and stochastic depth.

Patch embeddings turn images (B, C, H, W) into token grids (B, H / p, W / p, D).
"""

from tokennorm.layers.dual_patch_embed import DualPatchEmbed
from tokennorm.layers.patch_embed import PatchEmbed

__all__ = ['DualPatchEmbed', 'PatchEmbed']
