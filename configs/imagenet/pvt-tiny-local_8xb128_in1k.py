"""PVT-Tiny with LocalLayerNorm on ImageNet-1k.

PVT's heads (1, 2, 5, 8). The kernels have 20 times the rate, as in the study, which trained small models only.
"""

_base_ = './pvt-tiny_8xb128_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='LocalLayerNorm', eps=1e-6)))
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'.depthwise': dict(lr_mult=20.0)}))  # as in docs/study
