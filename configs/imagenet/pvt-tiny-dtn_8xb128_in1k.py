"""PVT-Tiny with Dynamic Token Normalization on ImageNet-1k.

DTN and attention have the heads (4, 4, 5, 8) of the DTN authors' code.
"""

_base_ = './pvt-tiny_8xb128_in1k.py'

model = dict(backbone=dict(arch='tiny-dtn', token_norm_cfg=dict(type='DTN')))
