"""RetinaNet on PVTv2-B3 with Dual PatchNorm.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/pvtv2-b3-dpn_8xb128_in1k.py 8
"""

_base_ = './retinanet_pvtv2-b3_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        norm_cfg=None,  # as in pretraining; the base has the eps of mmdet's COCO weights
        stem_cfg=dict(type='DualPatchEmbed'),
        init_cfg=dict(checkpoint='work_dirs/pvtv2-b3-dpn_8xb128_in1k/epoch_300.pth'),
    )
)
