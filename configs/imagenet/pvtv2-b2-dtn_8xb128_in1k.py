"""PVTv2-B2 with Dynamic Token Normalization on ImageNet-1k."""

_base_ = './pvtv2-b2_8xb128_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN')))
