"""Swin-B with LayerNorm on ImageNet-1k by the Swin authors' recipe: drop path 0.5."""

_base_ = './swin-tiny_16xb64_in1k.py'

model = dict(backbone=dict(arch='base', drop_path_rate=0.5), head=dict(in_channels=1024))
