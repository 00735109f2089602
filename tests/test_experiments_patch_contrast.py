"""What the first norm of Dual PatchNorm leaves of a patch, for patches whose variance is known."""

import pytest
import torch

from experiments.study.patch_contrast import between_means, contrast, patches_of
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


def test_variance_between_and_within_patches_are_told_apart():
    mosaic = torch.randn(5, 1, 4, 4).repeat_interleave(4, 2).repeat_interleave(4, 3)  # flat patches of 4 x 4
    assert between_means(patches_of(mosaic, 4)) == pytest.approx(1, abs=1e-5)
    board = (torch.arange(16)[:, None] + torch.arange(16)).remainder(2).mul(2.0).sub(1).expand(5, 1, 16, 16)
    assert between_means(patches_of(board, 4)) == pytest.approx(0, abs=1e-5)
    assert_near('contrast', contrast(patches_of(board, 4), eps=3.0), torch.full((80,), 0.5))  # 1 / sqrt(1 + 3)
