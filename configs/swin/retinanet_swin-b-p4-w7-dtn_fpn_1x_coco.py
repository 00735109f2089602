"""RetinaNet on Swin-B with Dynamic Token Normalization.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/swin-base-dtn_16xb64_in1k.py 16
"""

_base_ = './retinanet_swin-b-p4-w7_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(type='DTN'),
        init_cfg=dict(checkpoint='work_dirs/swin-base-dtn_16xb64_in1k/epoch_300.pth'),
    )
)
