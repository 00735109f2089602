"""Backbones: images (B, 3, H, W) to a tuple of feature maps (B, C, H, W). They need torch, einops and mmengine."""

from tokennorm.backbones.pvt import PVT

__all__ = ['PVT']
