"""PVTv2-B0 with LayerNorm on ImageNet-1k by the PVT authors' recipe, which is that of PVT."""

_base_ = './pvt-tiny_8xb128_in1k.py'

model = dict(
    backbone=dict(_delete_=True, type='tokennorm.PVTv2', arch='b0', out_type='avg_featmap'),
    head=dict(in_channels=256),
)
