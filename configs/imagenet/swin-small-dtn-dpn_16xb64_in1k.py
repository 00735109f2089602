"""Swin-S with Dynamic Token Normalization and Dual PatchNorm on ImageNet-1k."""

_base_ = './swin-small_16xb64_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed')))
