"""PVT-Medium with Dynamic Token Normalization on ImageNet-1k.

DTN and attention have the heads (4, 4, 5, 8) of the DTN authors' code.
"""

_base_ = './pvt-medium_8xb128_in1k.py'

model = dict(backbone=dict(arch='medium-dtn', token_norm_cfg=dict(type='DTN')))
