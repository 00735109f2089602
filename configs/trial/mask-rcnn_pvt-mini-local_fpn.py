"""Mask R-CNN on PVT-mini with LocalLayerNorm, for photographs with masks, on a CPU; with weights of this package."""

_base_ = './mask-rcnn_pvt-mini_fpn.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(type='LocalLayerNorm', eps=1e-6), init_cfg=dict(checkpoint='tokennorm:pvt-mini-local')
    )
)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'.depthwise': dict(lr_mult=20.0)}))  # as in docs/study
