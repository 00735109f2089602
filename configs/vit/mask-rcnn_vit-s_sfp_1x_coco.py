"""Mask R-CNN on ViT-S with a simple feature pyramid and LayerNorm, from DeiT's weights: the baseline of its twins.

After ViTDet: windows of 14 x 14 tokens, four blocks with global attention, relative positions in all of them. What is
not ViTDet's, beside the schedule's length: sides of 1333 x 800, where it has 1024 x 1024, jittered in scale; DeiT's
weights, not MAE's; mmdet's heads as on the other backbones, without norms and with one convolution in the RPN; float32.
"""

_base_ = [
    '../_base_/models/mask-rcnn_fpn.py',
    'mmdet::_base_/datasets/coco_instance.py',
    '../_base_/schedules/vit_1x.py',
    'mmdet::_base_/default_runtime.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.ViT',
        arch='small',
        rel_pos=64,
        init_cfg=dict(
            type='Pretrained', checkpoint='https://dl.fbaipublicfiles.com/deit/deit_small_patch16_224-cd65a155.pth'
        ),
    ),
    neck=dict(_delete_=True, type='tokennorm.SimpleFeaturePyramid', in_channels=384, num_outs=5),
)
