"""RetinaNet on PVTv2-B5 with Dynamic Token Normalization.

Starts from ImageNet pretraining of one's own: tools/dist_train.sh configs/imagenet/pvt-v2-b5-dtn_8xb128_in1k.py 8
"""

_base_ = './retinanet_pvt-v2-b5_fpn_1x_coco.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(type='DTN'),
        init_cfg=dict(checkpoint='work_dirs/pvt-v2-b5-dtn_8xb128_in1k/epoch_300.pth'),
    )
)
