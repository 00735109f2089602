"""ViT-S (S/16) with Dual PatchNorm on ImageNet-1k by big_vision's recipe."""

_base_ = './vit-small_32xb128-augreg_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
