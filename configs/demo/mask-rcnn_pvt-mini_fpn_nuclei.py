"""Mask R-CNN on a reduced PVT, for micrographs of nuclei of 256 x 256 pixels: for trials on a CPU.

For DTN and DPN:
--cfg-options model.backbone.token_norm_cfg.type=DTN model.backbone.stem_cfg.type=DualPatchEmbed
"""

_base_ = [
    '../_base_/models/mask-rcnn_fpn.py',
    'mmdet::_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_cosine.py',
]

model = dict(
    backbone=dict(
        type='tokennorm.PVT',
        arch='mini',
        drop_path_rate=0.0,
        pretrain_img_size=(256, 256),
    ),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=64, num_outs=4),
    rpn_head=dict(in_channels=64, feat_channels=64, anchor_generator=dict(scales=[4], strides=[4, 8, 16, 32])),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=64),
        mask_roi_extractor=dict(out_channels=64),
        bbox_head=dict(in_channels=64, fc_out_channels=256),
        mask_head=dict(num_convs=2, in_channels=64, conv_out_channels=64),
    ),
    train_cfg=dict(rpn_proposal=dict(nms_pre=500, max_per_img=300), rcnn=dict(sampler=dict(num=96))),
    test_cfg=dict(rpn=dict(nms_pre=500, max_per_img=300), rcnn=dict(max_per_img=200)),
)
train_dataloader = dict(batch_size=4)
