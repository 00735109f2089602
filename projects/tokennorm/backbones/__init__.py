"""Backbones: images (B, 3, H, W) to a tuple of feature maps (B, C, H, W). They need torch, einops and mmengine."""

from tokennorm.backbones.lape_vit import LaPEViT
from tokennorm.backbones.pvt import PVT
from tokennorm.backbones.pvt_v2 import PVTv2
from tokennorm.backbones.replaced_norms import ReplacedNorms
from tokennorm.backbones.swin import Swin
from tokennorm.backbones.timm_backbone import TimmBackbone
from tokennorm.backbones.vit import ViT

__all__ = ['PVT', 'LaPEViT', 'PVTv2', 'ReplacedNorms', 'Swin', 'TimmBackbone', 'ViT']
