"""Mask R-CNN on PVT-Tiny, nuclei enlarged to 512 pixels, from its own pretraining.

Images have up to 375 nuclei: as many detections are kept, and AP counts them all (mmdet's counts 100 otherwise).
"""

_base_ = [
    '../../_base_/models/mask-rcnn_fpn.py',
    '../../_base_/datasets/shapes_detection.py',
    '../../_base_/schedules/study_detector.py',
]

data_root = 'data/nuclei/'
metainfo = dict(_delete_=True, classes=('nucleus',))
image_scale = (512, 512)
max_epochs = 36

model = dict(
    backbone=dict(type='tokennorm.PVT', arch='tiny', pretrain_img_size=64),
    neck=dict(in_channels=[64, 128, 320, 512], norm_cfg=dict(type='GN', num_groups=32)),
    rpn_head=dict(anchor_generator=dict(scales=[4])),  # sides of 16 to 256 pixels
    roi_head=dict(bbox_head=dict(num_classes=1), mask_head=dict(num_classes=1)),
    test_cfg=dict(rcnn=dict(max_per_img=400)),
)
train_pipeline = _base_.train_pipeline
train_pipeline[1].with_mask = True  # LoadAnnotations
train_pipeline[2].scale = image_scale  # RandomResize
train_pipeline[3].crop_size = image_scale  # RandomCrop
test_pipeline = _base_.test_pipeline
test_pipeline[1].scale = image_scale  # Resize
test_pipeline[2].with_mask = True  # LoadAnnotations
files = dict(data_root=data_root, metainfo=metainfo, data_prefix=dict(img='images/'))
train_dataloader = dict(num_workers=8, dataset=dict(pipeline=train_pipeline, **files))
val_dataloader = dict(num_workers=4, dataset=dict(pipeline=test_pipeline, **files))
test_dataloader = val_dataloader
val_evaluator = dict(
    ann_file=data_root + 'annotations/val.json',
    metric=['bbox', 'segm'],
    use_mp_eval=True,
    proposal_nums=(100, 300, 1000),
)
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(optimizer=dict(lr=3e-4))
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_epochs  # the cosine
