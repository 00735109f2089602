"""ViT-S with LayerNorm on ImageNet-1k by DeiT's recipe, which is that of PVT-Tiny here.

With DTN the class token joins after the tenth block (DTN paper, A.1), with LayerNorm before the first one, as in DeiT.

The DTN paper trains in DeiT's framework with batches of 1024 images and an initial learning rate of 0.0005 (B.1). DeiT
scales 0.0005 by batch / 512, so the learning rate is 0.001 here.
"""

_base_ = './pvt-tiny_8xb128_in1k.py'

model = dict(
    backbone=dict(_delete_=True, type='tokennorm.ViT', arch='small', out_type='cls_token'),
    head=dict(in_channels=384),
)
