"""Semantic FPN on PVT-Small with Dynamic Token Normalization for ADE20K.

DTN and attention have the heads (4, 4, 5, 8) of the DTN authors' code.

The initial weights are those of your own ImageNet pretraining:

    tools/dist_train.sh configs/imagenet/pvt-small-dtn_8xb128_in1k.py 8
"""

_base_ = './fpn_pvt-s_8xb4-40k_ade20k.py'

model = dict(
    backbone=dict(
        arch='small-dtn',
        token_norm_cfg=dict(type='DTN'),
        init_cfg=dict(checkpoint='work_dirs/pvt-small-dtn_8xb128_in1k/epoch_300.pth'),
    )
)
