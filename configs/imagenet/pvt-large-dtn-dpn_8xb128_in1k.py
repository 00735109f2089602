"""PVT-Large with Dynamic Token Normalization and Dual PatchNorm on ImageNet-1k.

DTN and attention have the heads (4, 4, 5, 8) of the DTN authors' code.
"""

_base_ = './pvt-large_8xb128_in1k.py'

model = dict(backbone=dict(arch='large-dtn', token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed')))
