"""PVT-Small with Dual PatchNorm and DTN's heads (4, 4, 5, 8) on ImageNet-1k: the control of DTN and Dual PatchNorm."""

_base_ = './pvt-small-h4458_8xb128_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
