"""PVT-mini with LocalLayerNorm on Tiny ImageNet: pretraining for the detectors `*_pvt-mini-local_fpn`."""

_base_ = './pvt-mini_1xb128_tiny-imagenet.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='LocalLayerNorm')))
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'.depthwise': dict(lr_mult=20.0)}))  # as in docs/study
