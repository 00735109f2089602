"""Photographs of `--data DIR` with boxes, of up to 416 x 320 pixels; without it, blood cells."""

_base_ = './bccd_detection.py'

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
