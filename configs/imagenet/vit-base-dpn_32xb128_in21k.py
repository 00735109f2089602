"""ViT-B with Dual PatchNorm on ImageNet-21k, which the Dual PatchNorm notes train on besides ImageNet-1k.

The notes do not state a recipe. This is DeiT's optimizer with batches of 4096 images for 90 epochs, crops and flips,
without mixing. big_vision's `configs/vit_i21k.py` has 300 epochs, the mean of all tokens instead of the class token, a
weight decay of 1e-4 in its units (0.1 for torch), gradients clipped to 1, RandAugment of level 10, mixup of 0.2, and a
sigmoid for each class. `vit-base-dpn_8xb128_in1k` fine-tunes it with `model.backbone.init_cfg` set to its checkpoint.
"""

_base_ = './vit-base_32xb128_in21k.py'

model = dict(backbone=dict(stem_cfg=dict(type='DualPatchEmbed')))
