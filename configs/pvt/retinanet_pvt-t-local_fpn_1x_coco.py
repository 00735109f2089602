"""RetinaNet on PVT-Tiny with LocalLayerNorm.

PVT's heads (1, 2, 5, 8). The kernels have 20 times the rate, as in the study, which trained small models only.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/pvt-tiny-local_8xb128_in1k.py 8
"""

_base_ = './retinanet_pvt-t_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        norm_cfg=None,  # as in pretraining; the base has the eps of mmdet's COCO weights
        token_norm_cfg=dict(type='LocalLayerNorm', eps=1e-6),
        init_cfg=dict(checkpoint='work_dirs/pvt-tiny-local_8xb128_in1k/epoch_300.pth'),
    )
)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'.depthwise': dict(lr_mult=20.0)}))  # as in docs/study
