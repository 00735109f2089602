"""Mask R-CNN on PVTv2-B0 with LayerNorm, from the PVT authors' ImageNet weights: the baseline of its twins.

AdamW with learning rate and weight decay 1e-4 for 8 x 2 images, as in the PVTv2 paper, except that norms and lambda are
not decayed. (The authors' configs of Mask R-CNN, not those of RetinaNet, have a rate of 2e-4.)
"""

_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(
        _delete_=True,
        type='tokennorm.PVTv2',
        arch='b0',
        init_cfg=dict(
            type='Pretrained', checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_v2_b0.pth'
        ),
    ),
    neck=dict(in_channels=[32, 64, 160, 256]),
)
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, weight_decay=1e-4),
    paramwise_cfg=dict(norm_decay_mult=0.0),
)
