"""Patch embeddings: images (B, C, H, W) to token grids (B, H / p, W / p, D)."""

from tokennorm.stems.dual_patch_embed import DualPatchEmbed
from tokennorm.stems.patch_embed import PatchEmbed

__all__ = ['DualPatchEmbed', 'PatchEmbed']
