"""Necks: a backbone's feature maps to those that a detector's heads see. They need torch, einops and mmengine."""

from tokennorm.necks.simple_feature_pyramid import SimpleFeaturePyramid

__all__ = ['SimpleFeaturePyramid']
