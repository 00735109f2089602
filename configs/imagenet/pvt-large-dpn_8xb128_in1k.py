"""PVT-Large with Dual PatchNorm on ImageNet-1k, with PVT's heads (1, 2, 5, 8)."""

_base_ = './pvt-large_8xb128_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
