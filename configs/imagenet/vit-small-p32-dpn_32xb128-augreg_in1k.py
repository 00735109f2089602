"""ViT-S/32 with Dual PatchNorm on ImageNet-1k by big_vision's recipe."""

_base_ = './vit-small-p32_32xb128-augreg_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
