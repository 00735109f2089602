"""Mask R-CNN on DINOv3's ViT-B/16 with a simple feature pyramid.

The weights are timm's copy on the Hugging Face Hub, under the DINOv3 License. All blocks have global attention. Nothing
was trained with this config.
"""

_base_ = [
    '../_base_/models/mask-rcnn_fpn.py',
    'mmdet::_base_/datasets/coco_instance.py',
    '../_base_/schedules/vit_1x.py',
    'mmdet::_base_/default_runtime.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.TimmBackbone',
        model_name='vit_base_patch16_dinov3',
        timm_args=dict(dynamic_img_size=True, drop_path_rate=0.1),
        init_cfg=dict(type='Pretrained', checkpoint='timm/vit_base_patch16_dinov3.lvd1689m'),
    ),
    neck=dict(_delete_=True, type='tokennorm.SimpleFeaturePyramid', in_channels=768, num_outs=5),
)
optim_wrapper = dict(paramwise_cfg=dict(flat_decay_mult=0.0))  # LayerScale and biases
