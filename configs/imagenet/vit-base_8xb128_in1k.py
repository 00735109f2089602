"""ViT-B with LayerNorm on ImageNet-1k by DeiT's recipe."""

_base_ = './vit-small_8xb128_in1k.py'

model = dict(backbone=dict(arch='base'), head=dict(in_channels=768))
