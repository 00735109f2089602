"""PVT-Small with LayerNorm on ImageNet-1k by the PVT authors' recipe."""

_base_ = './pvt-tiny_8xb128_in1k.py'

model = dict(backbone=dict(arch='small'))
