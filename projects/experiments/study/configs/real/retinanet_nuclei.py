"""RetinaNet on PVT-mini, nuclei at 256 x 256 pixels, of which an image has up to 375."""

_base_ = './retinanet_bccd.py'

data_root = 'data/nuclei/'
metainfo = dict(_delete_=True, classes=('nucleus',))
image_scale = (256, 256)

model = dict(
    bbox_head=dict(num_classes=1, anchor_generator=dict(octave_base_scale=1.5)),  # sides of 12 to 76 pixels
    test_cfg=dict(max_per_img=400),
)
train_pipeline = _base_.train_pipeline
train_pipeline[2].scale = image_scale  # RandomResize
train_pipeline[3].crop_size = image_scale  # RandomCrop
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = image_scale  # Resize
files = dict(data_root=data_root, metainfo=metainfo)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline, **files))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline, **files))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/val.json', proposal_nums=(100, 300, 1000))
test_evaluator = val_evaluator
