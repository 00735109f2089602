"""PVT-Large with LayerNorm on ImageNet-1k by the PVT authors' recipe: drop path 0.3, gradient norms clipped to 1."""

_base_ = './pvt-tiny_8xb128_in1k.py'

model = dict(backbone=dict(arch='large', drop_path_rate=0.3))
optim_wrapper = dict(clip_grad=dict(max_norm=1.0))
