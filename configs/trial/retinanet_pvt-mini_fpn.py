"""RetinaNet on PVT-mini with LayerNorm, for photographs, on a CPU; its weights come with this package."""

_base_ = [
    '../_base_/models/retinanet_pvt-mini_fpn.py',
    '../_base_/datasets/photographs_detection.py',
    '../_base_/schedules/adamw_cosine_12e.py',
]

model = dict(
    type='tokennorm.RetinaNet',  # padding does not enter
    backbone=dict(pretrain_img_size=64, init_cfg=dict(type='Pretrained', checkpoint='tokennorm:pvt-mini')),
    neck=dict(num_outs=4),
    bbox_head=dict(
        num_classes=len(_base_.metainfo['classes']),
        anchor_generator=dict(octave_base_scale=4, strides=[8, 16, 32, 64]),
    ),
)
