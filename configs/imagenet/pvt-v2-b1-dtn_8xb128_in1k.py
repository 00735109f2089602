"""PVTv2-B1 with Dynamic Token Normalization on ImageNet-1k."""

_base_ = './pvt-v2-b1_8xb128_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN')))
