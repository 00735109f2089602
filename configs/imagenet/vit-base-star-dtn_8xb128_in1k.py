"""ViT-B* of the DTN paper with Dynamic Token Normalization on ImageNet-1k."""

_base_ = './vit-base-star_8xb128_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN')))
