"""Mask R-CNN on PVT-Medium with LayerNorm, PVT's heads (1, 2, 5, 8) and its authors' ImageNet weights."""

_base_ = './mask-rcnn_pvt-t_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='medium',
        drop_path_rate=0.0,
        init_cfg=dict(checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_medium.pth'),
    )
)
