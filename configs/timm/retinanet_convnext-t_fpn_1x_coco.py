"""RetinaNet on ConvNeXt-T, initialized from ImageNet-22k weights.

The schedule is Swin's, with a layer decay of 0.98 per block: 0.7 at the stem, as with ConvNeXt's 0.95 per group of
blocks. Nothing was trained with this config.
"""

_base_ = [
    '../_base_/models/retinanet_fpn.py',
    'mmdet::_base_/datasets/coco_detection.py',
    '../_base_/schedules/swin_1x.py',
    'mmdet::_base_/default_runtime.py',
    'mmdet::retinanet/retinanet_tta.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.TimmBackbone',
        model_name='convnext_tiny',
        out_indices=(1, 2, 3),
        timm_args=dict(drop_path_rate=0.2),
        init_cfg=dict(type='Pretrained', checkpoint='timm/convnext_tiny.fb_in22k_ft_in1k'),
    ),
    neck=dict(in_channels=[192, 384, 768], start_level=0),
)
optim_wrapper = dict(
    constructor='tokennorm.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(_delete_=True, decay_rate=0.98, norm_decay_mult=0.0, flat_decay_mult=0.0),
)
