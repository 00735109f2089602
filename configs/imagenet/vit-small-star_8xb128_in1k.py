"""ViT-S* of the DTN paper with LayerNorm on ImageNet-1k by DeiT's recipe: 9 heads of 48 channels."""

_base_ = './vit-small_8xb128_in1k.py'

model = dict(backbone=dict(arch='small*'), head=dict(in_channels=432))
