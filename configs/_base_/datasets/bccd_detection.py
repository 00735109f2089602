"""BCCD blood cells in COCO format (205 train, 87 val, 72 test images of 640 x 480), read at half that size."""

_base_ = './shapes_detection.py'

data_root = 'data/bccd/'
metainfo = dict(_delete_=True, classes=('RBC', 'WBC', 'Platelets'))
image_scale = (320, 240)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=image_scale, ratio_range=(0.8, 1.25), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(240, 320), allow_negative_crop=True),
    dict(type='RandomFlip', prob=[0.25, 0.25, 0.25], direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=image_scale, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
files = dict(data_root=data_root, metainfo=metainfo, data_prefix=dict(img='images/'))
train_dataloader = dict(dataset=dict(pipeline=train_pipeline, **files))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **files))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/val.json')
test_evaluator = val_evaluator
