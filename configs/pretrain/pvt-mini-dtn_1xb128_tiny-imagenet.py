"""PVT-mini with DTN on Tiny ImageNet: pretraining for `retinanet_pvt-mini-dtn_fpn` and `mask-rcnn_pvt-mini-dtn_fpn`."""

_base_ = './pvt-mini_1xb128_tiny-imagenet.py'

model = dict(backbone=dict(token_norm_cfg=dict(_delete_=True, type='DTN')))
