"""Mask R-CNN on PVTv2-B3 with Dynamic Token Normalization and Dual PatchNorm.

The heads are PVTv2's own (1, 2, 5, 8): Eq. 7 centers the heads of the first two stages on their own token.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/pvtv2-b3-dtn-dpn_8xb128_in1k.py 8
"""

_base_ = './mask-rcnn_pvtv2-b3_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(type='DTN'),
        stem_cfg=dict(type='DualPatchEmbed'),
        init_cfg=dict(checkpoint='work_dirs/pvtv2-b3-dtn-dpn_8xb128_in1k/epoch_300.pth'),
    )
)
