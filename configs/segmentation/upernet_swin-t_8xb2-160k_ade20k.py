"""UPerNet on Swin-T with LayerNorm for ADE20K, as in mmsegmentation, initialized from the Swin authors' weights.

It needs mmsegmentation: `pip install onedl-mmsegmentation==1.4.2`.
"""

_base_ = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='tokennorm.Swin',
        arch='tiny',
        drop_path_rate=0.3,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth',
        ),
    )
)
