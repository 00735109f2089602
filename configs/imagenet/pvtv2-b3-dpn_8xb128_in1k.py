"""PVTv2-B3 with Dual PatchNorm on ImageNet-1k."""

_base_ = './pvtv2-b3_8xb128_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
