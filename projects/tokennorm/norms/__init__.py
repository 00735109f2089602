"""Normalizers of token grids (B, H, W, C). They need torch and einops alone."""

from tokennorm.norms.dtn import DTN
from tokennorm.norms.layer_norm import LayerNorm

__all__ = ['DTN', 'LayerNorm']
