"""ViT-B with Dual PatchNorm on ImageNet-21k, which the Dual PatchNorm notes train on besides ImageNet-1k.

The notes do not state a recipe. This is DeiT's optimizer with batches of 4096 images for 90 epochs, crops and flips,
without mixing. `vit-base-dpn_8xb128_in1k` fine-tunes it with `model.backbone.init_cfg` set to its checkpoint.
"""

_base_ = './vit-base_32xb128_in21k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
