"""Cascade Mask R-CNN on Swin-T with LayerNorm, initialized from the Swin authors' ImageNet weights.

Optimizer and schedule are those of mmdet's Mask R-CNN on Swin.
"""

_base_ = [
    'mmdet::_base_/models/cascade-mask-rcnn_r50_fpn.py',
    'mmdet::_base_/datasets/coco_instance.py',
    '../_base_/schedules/swin_1x.py',
    'mmdet::_base_/default_runtime.py',
]

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(
        _delete_=True,
        type='tokennorm.Swin',
        arch='tiny',
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth',
        ),
    ),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
optim_wrapper = dict(constructor='tokennorm.LayerDecayOptimWrapperConstructor', paramwise_cfg=dict(decay_rate=1.0))
