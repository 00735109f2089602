"""Patch statistics against NumPy, and the stems that add them."""

import numpy as np
import pytest
import torch

from experiments.study.patch_statistics import DualPatchEmbedWithStatistics, PatchEmbedWithStatistics, patch_statistics


def test_patch_statistics_are_means_and_log_deviation() -> None:
    images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    found = patch_statistics(images, 4)
    assert found.shape == (2, 2, 3, 4)
    patch = images[1, :, 4:8, 8:12].numpy()
    expected = [*patch.mean((1, 2)), np.log(patch.std() + 0.05)]
    np.testing.assert_allclose(found[1, 1, 2], expected, rtol=1e-12)


@pytest.mark.parametrize('stem_type', [PatchEmbedWithStatistics, DualPatchEmbedWithStatistics])
def test_stem_adds_statistics_before_its_norm(stem_type: type) -> None:
    stem = stem_type(embed_dims=6, patch_size=4, norm_cfg=dict(type='LN'))
    images = torch.randn(2, 3, 8, 12)
    torch.nn.init.normal_(stem.statistics.bias)
    norm, stem.norm = stem.norm, torch.nn.Identity()
    with_statistics = stem(images)
    plain = super(type(stem).__mro__[1], stem).forward(images)  # the forward pass of the stem without statistics
    torch.testing.assert_close(with_statistics, plain + stem.statistics(patch_statistics(images, 4)))
    stem.norm = norm
    torch.testing.assert_close(stem(images), norm(with_statistics))
