"""PVT-Tiny with Dynamic Token Normalization on ImageNet-1k by the recipe of the DTN authors' code.

DTN and attention have the heads (4, 4, 5, 8) of that code.
"""

_base_ = './pvt-tiny_8xb128-release_in1k.py'

model = dict(backbone=dict(arch='tiny-dtn', token_norm_cfg=dict(type='DTN')))
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(position=dict(decay_mult=1.0))))
