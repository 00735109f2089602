"""Backbones for padded batches."""

SWIN = dict(embed_dims=(16, 32, 64, 128), depths=(1, 1, 1, 1), num_heads=(1, 2, 4, 8), mlp_ratios=(2, 2, 2, 2))

VIT = dict(embed_dims=36, depth=3, num_heads=4, mlp_ratio=2)
