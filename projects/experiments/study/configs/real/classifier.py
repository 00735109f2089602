"""Settings that all classifiers of the study on photographs share: 40 classes of Tiny ImageNet, 64 x 64 pixels.

9,600 training and 2,000 validation images; 10 epochs of 300 batches of 32.
"""

_base_ = [
    '../../../../../configs/_base_/models/linear_classifier.py',
    '../../../../../configs/_base_/datasets/image_folders.py',
    '../../../../../configs/_base_/schedules/study_classifier.py',
]

data_root = 'data/study_tiny_imagenet40'
num_classes = 40
image_size = 64
max_epochs = 10

data_preprocessor = dict(num_classes=num_classes)
model = dict(head=dict(num_classes=num_classes))
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomCrop', crop_size=image_size, padding=4, padding_mode='reflect'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
train_dataloader = dict(batch_size=32, num_workers=0, dataset=dict(data_root=data_root, pipeline=train_pipeline))
val_dataloader = dict(batch_size=100, num_workers=0, dataset=dict(data_root=data_root))
test_dataloader = val_dataloader

optim_wrapper = dict(optimizer=dict(lr=5e-4))
train_cfg = dict(max_epochs=max_epochs, val_interval=2)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=max_epochs, convert_to_iter_based=True),
]
