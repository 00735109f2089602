"""mmdet's Mask R-CNN, telling the norms what is padding; the backbone and the neck's in_channels are the config's."""

_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(_delete_=True),
    train_cfg=dict(  # for many objects, on a CPU
        rpn=dict(assigner=dict(iou_calculator=dict(type='tokennorm.BboxOverlapsInParts'))),
        rcnn=dict(assigner=dict(iou_calculator=dict(type='tokennorm.BboxOverlapsInParts'))),
    ),
)
