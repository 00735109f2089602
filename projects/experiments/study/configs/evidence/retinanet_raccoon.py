"""RetinaNet on PVT-mini, photographs of raccoons at 320 x 320 pixels, 12 epochs."""

_base_ = './retinanet_bccd.py'

data_root = 'data/raccoon/'
metainfo = dict(_delete_=True, classes=('raccoon',))
image_scale = (320, 320)

model = dict(
    neck=dict(num_outs=4),  # one raccoon fills most of its photograph
    bbox_head=dict(num_classes=1, anchor_generator=dict(strides=[8, 16, 32, 64])),  # sides of 24 to 305 pixels
)
train_pipeline = _base_.train_pipeline
train_pipeline[2].scale = image_scale  # RandomResize
train_pipeline[3].crop_size = image_scale  # RandomCrop
train_pipeline[4] = dict(type='RandomFlip', prob=0.5)
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = image_scale  # Resize
files = dict(data_root=data_root, metainfo=metainfo)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline, **files))
val_dataloader = dict(dataset=dict(ann_file='annotations/val.json', pipeline=test_pipeline, **files))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/val.json')
test_evaluator = val_evaluator
