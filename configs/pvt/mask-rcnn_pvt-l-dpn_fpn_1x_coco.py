"""Mask R-CNN on PVT-Large with Dual PatchNorm and PVT's heads (1, 2, 5, 8).

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/pvt-large-dpn_8xb128_in1k.py 8
"""

_base_ = './mask-rcnn_pvt-l_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        stem_cfg=dict(type='DualPatchEmbed'),
        init_cfg=dict(checkpoint='work_dirs/pvt-large-dpn_8xb128_in1k/epoch_300.pth'),
    )
)
