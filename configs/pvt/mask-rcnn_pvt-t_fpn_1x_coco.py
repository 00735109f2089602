"""Mask R-CNN on PVT-Tiny with LayerNorm, from the PVT authors' ImageNet weights: the baseline of its twins.

AdamW with learning rate and weight decay 1e-4 for 8 x 2 images, as in the PVT paper, except that norms, lambda and
positions are not decayed. (The authors' later configs of Mask R-CNN, not those of RetinaNet, have a rate of 2e-4.)
"""

_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(
        _delete_=True,
        type='tokennorm.PVT',
        arch='tiny',
        init_cfg=dict(type='Pretrained', checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_tiny.pth'),
    ),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
optim_wrapper = dict(
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, weight_decay=1e-4),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(pos_embed=dict(decay_mult=0.0))),
)
