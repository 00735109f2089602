"""RetinaNet on PVTv2-B4 with LayerNorm, initialized from the PVT authors' ImageNet weights.

The authors and mmdet train it with 8 x 1 images and a rate of 1e-4 / 1.4, not with 8 x 2 and 1e-4 as the other sizes.
"""

_base_ = './retinanet_pvtv2-b1_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='b4', init_cfg=dict(checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_v2_b4.pth')
    )
)
train_dataloader = dict(batch_size=1)
optim_wrapper = dict(optimizer=dict(lr=1e-4 / 1.4))
auto_scale_lr = dict(base_batch_size=8)
