"""ViT-B* of the DTN paper with LayerNorm on ImageNet-1k by DeiT's recipe: 16 heads of 48 channels."""

_base_ = './vit-base_8xb128_in1k.py'

model = dict(backbone=dict(arch='base*'))
