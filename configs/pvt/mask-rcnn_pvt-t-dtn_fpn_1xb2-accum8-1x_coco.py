"""Mask R-CNN on PVT-Tiny with Dynamic Token Normalization on one GPU.

Starts from ImageNet pretraining of one's own: tools/dist_train.sh configs/imagenet/pvt-tiny-dtn_8xb128_in1k.py 8
"""

_base_ = './mask-rcnn_pvt-t_fpn_1xb2-accum8-1x_coco.py'

model = dict(
    backbone=dict(
        token_norm_cfg=dict(type='DTN'),
        init_cfg=dict(checkpoint='work_dirs/pvt-tiny-dtn_8xb128_in1k/epoch_300.pth'),
    )
)
