"""Swin-S with LayerNorm on ImageNet-1k by the Swin authors' recipe: drop path 0.3."""

_base_ = './swin-tiny_16xb64_in1k.py'

model = dict(backbone=dict(arch='small', drop_path_rate=0.3))
