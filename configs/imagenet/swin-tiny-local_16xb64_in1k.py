"""Swin-T with LocalLayerNorm on ImageNet-1k.

The kernels have 20 times the rate, as in the study, which trained small models only.
"""

_base_ = './swin-tiny_16xb64_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='LocalLayerNorm')))
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'.depthwise': dict(lr_mult=20.0)}))  # as in docs/study
