"""PVTv2-B2 with Dynamic Token Normalization on ImageNet-1k.

The heads are PVTv2's own (1, 2, 5, 8): Eq. 7 centers the heads of the first two stages on their own token.
"""

_base_ = './pvtv2-b2_8xb128_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN')))
