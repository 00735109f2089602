"""PVTv2-B1 with LayerNorm on ImageNet-1k by the PVT authors' recipe."""

_base_ = './pvt-v2-b0_8xb128_in1k.py'

model = dict(backbone=dict(arch='b1'), head=dict(in_channels=512))
