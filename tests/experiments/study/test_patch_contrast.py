"""What the first norm of Dual PatchNorm leaves of a patch, for patches whose variance is known."""

import torch

from experiments.study.patch_contrast import contrast, patches_of
from tests.helpers.compare import assert_near
from tokennorm.layers import DualPatchEmbed


def test_patches_are_those_of_dual_patch_embed():
    images = torch.randn(2, 3, 8, 12)
    stem = DualPatchEmbed(3, 8, patch_size=4)
    seen = []
    stem.patch_norm.register_forward_hook(lambda _, inputs, output: seen.extend([inputs[0], output]))
    stem(images)
    patches = patches_of(images, 4)
    assert_near('patches', patches, seen[0].flatten(0, 2))
    assert_near('contrast', contrast(patches, 1e-6), seen[1].flatten(0, 2).std(1, unbiased=False))
