"""Mask R-CNN on ViT-B with Dynamic Token Normalization.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/vit-base-dtn_8xb128_in1k.py 8
"""

_base_ = './mask-rcnn_vit-b_sfp_1x_coco.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(type='DTN'),
        init_cfg=dict(checkpoint='work_dirs/vit-base-dtn_8xb128_in1k/epoch_300.pth'),
    )
)
