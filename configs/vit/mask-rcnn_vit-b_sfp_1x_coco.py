"""Mask R-CNN on ViT-B with LayerNorm, initialized from the DeiT authors' ImageNet weights."""

_base_ = './mask-rcnn_vit-s_sfp_1x_coco.py'

model = dict(
    backbone=dict(
        arch='base', init_cfg=dict(checkpoint='https://dl.fbaipublicfiles.com/deit/deit_base_patch16_224-b5f2ef4d.pth')
    ),
    neck=dict(in_channels=768),
)
