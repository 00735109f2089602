"""Patch embeddings: images (B, C, H, W) to token grids (B, H / p, W / p, D)."""

from tokennorm.layers.dual_patch_embed import DualPatchEmbed
from tokennorm.layers.patch_embed import PatchEmbed

__all__ = ['DualPatchEmbed', 'PatchEmbed']
