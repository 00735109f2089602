"""PVTv2-B2 with LayerNorm on ImageNet-1k, with the PVT authors' recipe."""

_base_ = './pvt-tiny_8xb128_in1k.py'

model = dict(
    backbone=dict(_delete_=True, type='tokennorm.PVTv2', arch='b2', out_type='avg_featmap'),
    head=dict(in_channels=512),
)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(_delete_=True)))  # PVTv2 has no positions and no class token
