"""BCCD blood cells in COCO format (205 train, 87 val, 72 test images of 640 x 480), read at half that size."""

_base_ = './shapes_detection.py'

data_root = 'data/bccd/'
metainfo = dict(_delete_=True, classes=('RBC', 'WBC', 'Platelets'))
image_scale = (320, 240)

train_pipeline = _base_.train_pipeline
train_pipeline[2].scale = image_scale  # RandomResize
train_pipeline[3].crop_size = image_scale  # RandomCrop, (width, height)
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = image_scale  # Resize
files = dict(data_root=data_root, metainfo=metainfo, data_prefix=dict(img='images/'))
train_dataloader = dict(dataset=dict(pipeline=train_pipeline, **files))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **files))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/val.json')
test_evaluator = val_evaluator
