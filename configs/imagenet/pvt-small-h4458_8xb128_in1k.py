"""PVT-Small with LayerNorm and DTN's heads (4, 4, 5, 8) on ImageNet-1k: the control of DTN for the heads."""

_base_ = './pvt-small_8xb128_in1k.py'

model = dict(backbone=dict(arch='small-dtn'))
