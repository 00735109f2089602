"""ViT-S/32, with patches of 32 x 32 pixels, and LayerNorm on ImageNet-1k by DeiT's recipe."""

_base_ = './vit-small_8xb128_in1k.py'

model = dict(backbone=dict(patch_size=32))
