"""ViT-B with Dual PatchNorm on ImageNet-1k by DeiT's recipe.

`vit-base-dpn_32xb128-augreg_in1k` has big_vision's, which the well-tuned baselines of Dual PatchNorm have.
"""

_base_ = './vit-base_8xb128_in1k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
