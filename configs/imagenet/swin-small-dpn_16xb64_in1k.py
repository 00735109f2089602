"""Swin-S with Dual PatchNorm on ImageNet-1k."""

_base_ = './swin-small_16xb64_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
