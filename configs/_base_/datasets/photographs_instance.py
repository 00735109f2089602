"""Photographs of `--data DIR` with masks, of up to 416 x 320 pixels; without it, COCO."""

_base_ = 'mmdet::_base_/datasets/coco_instance.py'

image_scale = (416, 320)
train_pipeline = _base_.train_pipeline
train_pipeline[2].scale = image_scale  # Resize
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = image_scale  # Resize
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
