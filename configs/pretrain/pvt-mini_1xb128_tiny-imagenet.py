"""PVT-mini with LayerNorm on the 200 classes of Tiny ImageNet, 64 x 64 pixels: the study's pretraining, for a CPU.

4 epochs take 31 to 36 minutes of processor time on an AMD EPYC. Use it with `--data DIR`; it takes folders of your own
classes, too. Then train a detector from it:

    tokennorm train pvt-mini_1xb128_tiny-imagenet --data CLASSES --out pretrained
    tokennorm train retinanet_pvt-mini_fpn --data DIR --init pretrained
"""

_base_ = [
    '../_base_/models/linear_classifier.py',
    '../_base_/datasets/image_folders.py',
    '../_base_/schedules/study_classifier.py',
]

data_root = 'data/tiny_imagenet200'
num_classes = 200
image_size = 64
max_epochs = 4

data_preprocessor = dict(num_classes=num_classes)
model = dict(
    backbone=dict(
        type='tokennorm.PVT',
        arch='mini',
        pretrain_img_size=image_size,
        out_type='cls_token',
        token_norm_cfg=dict(type='LN', eps=1e-6),
        stem_cfg=dict(type='PatchEmbed'),
        drop_path_rate=0.0,
    ),
    head=dict(num_classes=num_classes, in_channels=256),
)
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=image_size, edge='short'),  # for images of your own
    dict(type='RandomCrop', crop_size=image_size, padding=4, padding_mode='reflect'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='ResizeEdge', scale=image_size, edge='short'),
    dict(type='CenterCrop', crop_size=image_size),
    dict(type='PackInputs'),
]
train_dataloader = dict(batch_size=128, num_workers=0, dataset=dict(data_root=data_root, pipeline=train_pipeline))
val_dataloader = dict(batch_size=100, num_workers=0, dataset=dict(data_root=data_root, pipeline=test_pipeline))
test_dataloader = val_dataloader

train_cfg = dict(max_epochs=max_epochs, val_interval=1)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=max_epochs, convert_to_iter_based=True),
]
