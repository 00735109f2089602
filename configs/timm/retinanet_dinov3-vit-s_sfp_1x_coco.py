"""RetinaNet on DINOv3's ViT-S/16 with a simple feature pyramid.

The weights are timm's copy on the Hugging Face Hub, under the DINOv3 License. Files of the authors' repository fit as
well: set `init_cfg.checkpoint` to the file. All blocks have global attention. Nothing was trained with this config.
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
        type='tokennorm.TimmBackbone',
        model_name='vit_small_patch16_dinov3',
        timm_args=dict(dynamic_img_size=True, drop_path_rate=0.1),
        init_cfg=dict(type='Pretrained', checkpoint='timm/vit_small_patch16_dinov3.lvd1689m'),
    ),
    neck=dict(_delete_=True, type='tokennorm.SimpleFeaturePyramid', in_channels=384, start_level=1, num_outs=5),
)
optim_wrapper = dict(paramwise_cfg=dict(flat_decay_mult=0.0))  # LayerScale and biases
