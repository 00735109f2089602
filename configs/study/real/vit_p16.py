"""The small ViT with patches of 16 x 16 pixels: a grid of 4 x 4 tokens."""

_base_ = './vit_p8.py'

model = dict(backbone=dict(patch_size=16))
