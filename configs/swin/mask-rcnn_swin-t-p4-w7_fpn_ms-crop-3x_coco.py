"""Mask R-CNN on Swin-T with LayerNorm by mmdet's 3x recipe: 36 epochs, crops, images of several sizes.

mmdet's AP of 46.0 and 41.6 is that of this recipe. The warm-up, rate and weight decay are as in the 1x config.
"""

_base_ = 'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco.py'

model = dict(
    data_preprocessor=dict(type='tokennorm.DetDataPreprocessor'),
    backbone=dict(
        _delete_=True,
        type='tokennorm.Swin',
        arch='tiny',
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth',
        ),
    ),
)
optim_wrapper = dict(
    paramwise_cfg=dict(
        _delete_=True,
        norm_decay_mult=0.0,
        custom_keys=dict(relative_position_bias_table=dict(decay_mult=0.0)),
    )
)
