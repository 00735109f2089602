"""ViT-S with LayerNorm on ImageNet-1k by DeiT's recipe, which is that of PVT-Tiny here.

With DTN the class token joins behind the tenth block (DTN paper, A.1), with LayerNorm before the first one, as in DeiT.
"""

_base_ = './pvt-tiny_8xb128_in1k.py'

model = dict(
    backbone=dict(_delete_=True, type='tokennorm.ViT', arch='small', out_type='cls_token'),
    head=dict(in_channels=384),
)
