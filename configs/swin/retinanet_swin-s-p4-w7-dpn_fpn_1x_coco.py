"""RetinaNet on Swin-S with Dual PatchNorm.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/swin-small-dpn_16xb64_in1k.py 16
"""

_base_ = './retinanet_swin-s-p4-w7_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        stem_cfg=dict(type='DualPatchEmbed'),
        init_cfg=dict(checkpoint='work_dirs/swin-small-dpn_16xb64_in1k/epoch_300.pth'),
    )
)
