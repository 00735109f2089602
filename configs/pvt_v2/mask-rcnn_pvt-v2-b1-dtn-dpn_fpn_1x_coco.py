"""Mask R-CNN on PVTv2-B1 with Dynamic Token Normalization and Dual PatchNorm.

Starts from ImageNet pretraining of one's own: tools/dist_train.sh configs/imagenet/pvt-v2-b1-dtn-dpn_8xb128_in1k.py 8
"""

_base_ = './mask-rcnn_pvt-v2-b1_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(type='DTN'),
        stem_cfg=dict(type='DualPatchEmbed'),
        init_cfg=dict(checkpoint='work_dirs/pvt-v2-b1-dtn-dpn_8xb128_in1k/epoch_300.pth'),
    )
)
