"""ViT-S with Dual PatchNorm on ImageNet-1k."""

_base_ = './vit-small_8xb128_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
