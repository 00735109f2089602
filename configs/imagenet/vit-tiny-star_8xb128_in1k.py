"""ViT-T* of the DTN paper with LayerNorm on ImageNet-1k by DeiT's recipe: 4 heads of 48 channels."""

_base_ = './vit-tiny_8xb128_in1k.py'

model = dict(backbone=dict(arch='tiny*'))
