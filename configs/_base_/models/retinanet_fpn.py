"""mmdet's RetinaNet, telling the norms what is padding; the backbone and the neck's in_channels are the config's."""

_base_ = 'mmdet::_base_/models/retinanet_r50_fpn.py'

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(_delete_=True),
    # for many objects, on a CPU
    train_cfg=dict(assigner=dict(iou_calculator=dict(type='tokennorm.BboxOverlapsInParts'))),
)
