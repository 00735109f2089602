"""ViT-T (Ti/16) with Dual PatchNorm on ImageNet-1k."""

_base_ = './vit-tiny_8xb128_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
