"""ViT-S with Dynamic Token Normalization and Dual PatchNorm on ImageNet-1k."""

_base_ = './vit-small_8xb128_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed')))
