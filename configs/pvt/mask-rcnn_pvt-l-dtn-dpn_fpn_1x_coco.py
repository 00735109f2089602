"""Mask R-CNN on PVT-Large with Dynamic Token Normalization and Dual PatchNorm.

DTN and attention have the heads (4, 4, 5, 8) of the DTN authors' code.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/pvt-large-dtn-dpn_8xb128_in1k.py 8
"""

_base_ = './mask-rcnn_pvt-l_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        arch='large-dtn',
        token_norm_cfg=dict(type='DTN'),
        stem_cfg=dict(type='DualPatchEmbed'),
        init_cfg=dict(checkpoint='work_dirs/pvt-large-dtn-dpn_8xb128_in1k/epoch_300.pth'),
    )
)
