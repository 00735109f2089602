"""Mask R-CNN on Swin-S with Dynamic Token Normalization by mmdet's 3x recipe.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/swin-small-dtn_16xb64_in1k.py 16
"""

_base_ = './mask-rcnn_swin-s-p4-w7_fpn_ms-crop-3x_coco.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(type='DTN'),
        init_cfg=dict(checkpoint='work_dirs/swin-small-dtn_16xb64_in1k/epoch_300.pth'),
    )
)
