"""RetinaNet on PVTv2-B1 with LayerNorm, initialized from the PVT authors' ImageNet weights."""

_base_ = './retinanet_pvtv2-b0_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='b1', init_cfg=dict(checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_v2_b1.pth')
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
