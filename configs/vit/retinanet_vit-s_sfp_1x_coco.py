"""RetinaNet on ViT-S with a simple feature pyramid and LayerNorm, from DeiT's weights: the baseline of its twins.

After ViTDet: windows of 14 x 14 tokens, four blocks with global attention, relative positions in all of them. What is
not ViTDet's, beside the schedule's length: sides of 1333 x 800, where it has 1024 x 1024, jittered in scale; DeiT's
weights, not MAE's; RetinaNet, which ViTDet does not have; float32.
"""

_base_ = [
    '../_base_/models/retinanet_fpn.py',
    'mmdet::_base_/datasets/coco_detection.py',
    '../_base_/schedules/vit_1x.py',
    'mmdet::_base_/default_runtime.py',
    'mmdet::retinanet/retinanet_tta.py',
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
    neck=dict(_delete_=True, type='tokennorm.SimpleFeaturePyramid', in_channels=384, start_level=1, num_outs=5),
)
