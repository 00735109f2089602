"""The names of stems in the study's finished runs."""

import pytest
import torch

from experiments.study.patch_statistics import DualPatchEmbedWithStatistics, PatchEmbedWithStatistics
from tokennorm.layers import DualPatchEmbed, PatchEmbed


@pytest.mark.parametrize(
    ('named', 'cls'), [(PatchEmbedWithStatistics, PatchEmbed), (DualPatchEmbedWithStatistics, DualPatchEmbed)]
)
def test_a_stem_of_the_study_is_the_package_s(named, cls):
    kwargs = dict(in_channels=3, embed_dims=6, patch_size=4, norm_cfg=dict(type='LN'))
    of_study, of_package = named(**kwargs), cls(**kwargs, statistics=True)
    of_package.load_state_dict(of_study.state_dict())
    image = torch.randn(2, 3, 8, 12)
    assert torch.equal(of_study(image), of_package(image))
