"""RetinaNet on Swin-T with LocalLayerNorm.

The kernels have 20 times the rate, as in the study, which trained small models only.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/swin-tiny-local_16xb64_in1k.py 16
"""

_base_ = './retinanet_swin-t-p4-w7_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(type='LocalLayerNorm'),
        init_cfg=dict(checkpoint='work_dirs/swin-tiny-local_16xb64_in1k/epoch_300.pth'),
    )
)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'.depthwise': dict(lr_mult=20.0)}))  # as in docs/study
