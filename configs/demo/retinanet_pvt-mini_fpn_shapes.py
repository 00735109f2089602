"""RetinaNet on a reduced PVT with LayerNorm and the plain stem: the control of the demo, trained from scratch."""

_base_ = [
    'mmdet::_base_/models/retinanet_r50_fpn.py',
    'mmdet::_base_/default_runtime.py',
    '../_base_/shapes_detection.py',
]

num_classes = len(_base_.metainfo['classes'])
norm_cfg = dict(type='GN', num_groups=8)
model = dict(
    backbone=dict(
        _delete_=True,
        type='tokennorm.PVT',
        arch=dict(
            embed_dims=(32, 64, 128, 256),
            depths=(1, 1, 2, 1),
            num_heads=(1, 2, 4, 8),
            mlp_ratios=(4, 4, 4, 4),
            sr_ratios=(8, 4, 2, 1),
        ),
        token_norm_cfg=dict(type='LN', eps=1e-6),
        stem_cfg=dict(type='PatchEmbed'),
        pretrain_img_size=_base_.image_scale,
        drop_path_rate=0.0,
    ),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=64, num_outs=4, norm_cfg=norm_cfg),
    bbox_head=dict(
        num_classes=num_classes,
        in_channels=64,
        feat_channels=64,
        stacked_convs=2,
        norm_cfg=norm_cfg,
        # Sides of 16 to 203 pixels: objects of the dataset are 13 to 104.
        anchor_generator=dict(octave_base_scale=2, strides=[8, 16, 32, 64]),
    ),
)

max_epochs = 20
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=2)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0, custom_keys=dict(pos_embed=dict(decay_mult=0.0))),
    clip_grad=dict(max_norm=10.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=75),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=0, end=max_epochs, convert_to_iter_based=True),
]
auto_scale_lr = dict(enable=False, base_batch_size=8)
default_hooks = dict(
    logger=dict(interval=25),
    checkpoint=dict(interval=2, max_keep_ckpts=1, save_best='coco/bbox_mAP', rule='greater'),
)
custom_hooks = [dict(type='tokennorm.ReportHook')]
randomness = dict(seed=0)
work_dir = 'work_dirs/demo-control'
