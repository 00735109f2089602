"""ViT-S* with Dynamic Token Normalization on ImageNet-1k by the recipe of the DTN authors' code, in which P has weight
decay: it would fall to e^-9.5 of its value over the recipe without a gradient.
"""

_base_ = './vit-small-star_8xb128-release_in1k.py'

model = dict(backbone=dict(token_norm_cfg=dict(type='DTN')))
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(position=dict(decay_mult=1.0))))
