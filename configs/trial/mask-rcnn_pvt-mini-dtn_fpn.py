"""Mask R-CNN on PVT-mini with DTN, for photographs with masks, on a CPU; its weights come with this package."""

_base_ = './mask-rcnn_pvt-mini_fpn.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN'), init_cfg=dict(checkpoint='tokennorm:pvt-mini-dtn')))
