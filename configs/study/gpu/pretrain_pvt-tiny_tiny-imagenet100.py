"""The study's pretraining at GPU size: PVT-Tiny on 100 classes of Tiny ImageNet, 64 x 64 pixels."""

_base_ = [
    '../../_base_/models/linear_classifier.py',
    '../../_base_/datasets/image_folders.py',
    '../../_base_/schedules/study_classifier.py',
]

data_root = 'data/tiny_imagenet100'
num_classes = 100
image_size = 64
max_epochs = 60

data_preprocessor = dict(num_classes=num_classes)
model = dict(
    backbone=dict(
        type='tokennorm.PVT', arch='tiny', pretrain_img_size=image_size, out_type='cls_token', drop_path_rate=0.1
    ),
    head=dict(num_classes=num_classes, in_channels=512),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=image_size, crop_ratio_range=(0.25, 1.0)),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
train_dataloader = dict(batch_size=256, num_workers=12, dataset=dict(data_root=data_root, pipeline=train_pipeline))
val_dataloader = dict(batch_size=256, num_workers=4, persistent_workers=True, dataset=dict(data_root=data_root))
test_dataloader = val_dataloader

train_cfg = dict(max_epochs=max_epochs, val_interval=2)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=max_epochs, convert_to_iter_based=True),
]
