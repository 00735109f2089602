"""Mask R-CNN on PVT-Medium with Dynamic Token Normalization.

DTN and attention have the heads (4, 4, 5, 8) of the DTN authors' code.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/pvt-medium-dtn_8xb128_in1k.py 8
"""

_base_ = './mask-rcnn_pvt-m_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='medium-dtn',
        token_norm_cfg=dict(type='DTN'),
        init_cfg=dict(checkpoint='work_dirs/pvt-medium-dtn_8xb128_in1k/epoch_300.pth'),
    )
)
