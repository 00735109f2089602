"""ViT-T with LayerNorm on ImageNet-1k by DeiT's recipe. The Dual PatchNorm notes call it Ti/16."""

_base_ = './vit-small_8xb128_in1k.py'

model = dict(backbone=dict(arch='tiny'), head=dict(in_channels=192))
