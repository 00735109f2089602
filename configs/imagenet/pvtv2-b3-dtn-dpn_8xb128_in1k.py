"""PVTv2-B3 with Dynamic Token Normalization and Dual PatchNorm on ImageNet-1k.

The heads are PVTv2's own (1, 2, 5, 8): Eq. 7 centers the heads of the first two stages on their own token.
"""

_base_ = './pvtv2-b3_8xb128_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed')))
