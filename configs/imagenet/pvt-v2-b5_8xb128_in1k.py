"""PVTv2-B5 with LayerNorm on ImageNet-1k by the PVT authors' recipe."""

_base_ = './pvt-v2-b1_8xb128_in1k.py'

model = dict(backbone=dict(arch='b5', drop_path_rate=0.3))
optim_wrapper = dict(clip_grad=dict(max_norm=1.0))
