"""Mask R-CNN on PVTv2-B3 with LayerNorm, initialized from the PVT authors' ImageNet weights."""

_base_ = './mask-rcnn_pvtv2-b2_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='b3', init_cfg=dict(checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_v2_b3.pth')
    )
)
