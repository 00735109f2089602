"""Necks, between the feature maps of a backbone and the heads of a detector. They need torch, einops and mmengine."""

from tokennorm.necks.simple_feature_pyramid import SimpleFeaturePyramid

__all__ = ['SimpleFeaturePyramid']
