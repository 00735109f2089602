"""Swin-B with Dynamic Token Normalization on ImageNet-1k."""

_base_ = './swin-base_16xb64_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN')))
