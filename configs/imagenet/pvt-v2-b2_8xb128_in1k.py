"""PVTv2-B2 with LayerNorm on ImageNet-1k by the PVT authors' recipe."""

_base_ = './pvt-v2-b1_8xb128_in1k.py'

model = dict(backbone=dict(arch='b2'))
