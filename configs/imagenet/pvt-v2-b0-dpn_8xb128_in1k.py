"""PVTv2-B0 with Dual PatchNorm on ImageNet-1k."""

_base_ = './pvt-v2-b0_8xb128_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
