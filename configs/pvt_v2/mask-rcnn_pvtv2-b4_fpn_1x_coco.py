"""Mask R-CNN on PVTv2-B4 with LayerNorm, initialized from the PVT authors' ImageNet weights."""

_base_ = './mask-rcnn_pvtv2-b1_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='b4', init_cfg=dict(checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_v2_b4.pth')
    )
)
