"""The study's pretraining at CPU size: a PVT of 1.7 million parameters on 12 generated classes, 64 x 64 pixels."""

_base_ = [
    '../../../../../configs/_base_/models/linear_classifier.py',
    '../../../../../configs/_base_/datasets/image_folders.py',
    '../../../../../configs/_base_/schedules/study_classifier.py',
]

data_root = 'data/study_shape_classes'
num_classes = 12
image_size = 64
max_epochs = 12

data_preprocessor = dict(num_classes=num_classes)
model = dict(
    backbone=dict(
        type='tokennorm.PVT',
        arch='mini',
        pretrain_img_size=image_size,
        out_type='cls_token',
        drop_path_rate=0.0,
    ),
    head=dict(num_classes=num_classes, in_channels=256),
)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomCrop', crop_size=image_size, padding=4, padding_mode='reflect'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
train_dataloader = dict(batch_size=32, num_workers=0, dataset=dict(data_root=data_root, pipeline=train_pipeline))
val_dataloader = dict(batch_size=64, num_workers=0, dataset=dict(data_root=data_root))
test_dataloader = val_dataloader

train_cfg = dict(max_epochs=max_epochs, val_interval=1)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=max_epochs, convert_to_iter_based=True),
]
