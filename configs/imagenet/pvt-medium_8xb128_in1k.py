"""PVT-Medium with LayerNorm on ImageNet-1k by the PVT authors' recipe: drop path 0.3, gradient norms clipped to 1."""

_base_ = './pvt-large_8xb128_in1k.py'

model = dict(backbone=dict(arch='medium'))
