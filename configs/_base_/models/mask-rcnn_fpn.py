"""mmdet's Mask R-CNN, telling the norms what is padding; the backbone and the neck's in_channels are the config's."""

_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'

iou_calculator = dict(type='tokennorm.BboxOverlapsInParts')  # for many objects, on a CPU
model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(_delete_=True),
    train_cfg=dict(
        rpn=dict(assigner=dict(iou_calculator=iou_calculator)), rcnn=dict(assigner=dict(iou_calculator=iou_calculator))
    ),
)
