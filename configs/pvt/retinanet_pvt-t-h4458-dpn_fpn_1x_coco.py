"""RetinaNet on PVT-Tiny with Dual PatchNorm and DTN's heads (4, 4, 5, 8): the control of DTN and Dual PatchNorm.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/pvt-tiny-h4458-dpn_8xb128_in1k.py 8
"""

_base_ = './retinanet_pvt-t-h4458_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        stem_cfg=dict(type='DualPatchEmbed'),
        init_cfg=dict(checkpoint='work_dirs/pvt-tiny-h4458-dpn_8xb128_in1k/epoch_300.pth'),
    )
)
