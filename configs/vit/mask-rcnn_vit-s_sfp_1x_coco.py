"""Mask R-CNN on ViT-S with a simple feature pyramid and LayerNorm, initialized from DeiT's weights.

The backbone follows ViTDet: windows of 14 x 14 tokens, four blocks with global attention, relative positions. It
differs from ViTDet in these points:

- 12 epochs, and images of 1333 x 800 pixels instead of 1024 x 1024 with large-scale jitter
- DeiT's weights instead of MAE's
- mmdet's heads, as on the other backbones: no norms, one convolution in the RPN
- float32
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
