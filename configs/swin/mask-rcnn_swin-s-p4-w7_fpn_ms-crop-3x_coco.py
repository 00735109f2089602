"""Mask R-CNN on Swin-S with LayerNorm by mmdet's 3x recipe: 36 epochs, crops, images of several sizes.

mmdet's AP of 48.2 and 43.2 is that of this recipe in float16; add `--amp fp16` for that.
"""

_base_ = './mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco.py'

model = dict(
    backbone=dict(
        arch='small',
        init_cfg=dict(
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_small_patch4_window7_224.pth'
        ),
    )
)
