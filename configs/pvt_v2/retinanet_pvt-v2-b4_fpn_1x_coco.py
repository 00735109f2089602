"""RetinaNet on PVTv2-B4 with LayerNorm, from the PVT authors' ImageNet weights: the baseline of its twins."""

_base_ = './retinanet_pvt-v2-b1_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='b4',
        init_cfg=dict(checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_v2_b4.pth'),
    )
)
