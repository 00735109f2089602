"""The plain stem with patch statistics."""

import torch
from einops import rearrange
from torch import nn

from experiments.study.patch_statistics import PatchEmbedWithStatistics
from tests.helpers.compare import assert_near


def test_plain_stem_adds_statistics_before_its_norm():
    stem = PatchEmbedWithStatistics(embed_dims=6, patch_size=4, norm_cfg=dict(type='LN'))
    nn.init.normal_(stem.statistics.bias)
    image = torch.randn(2, 3, 8, 12)
    patches = rearrange(image, 'b c (h p) (w q) -> b h w (p q c)', p=4, q=4)
    expected = rearrange(stem.proj(image), 'b c h w -> b h w c') + stem.statistics(patches)
    assert_near('tokens', stem(image), stem.norm(expected))
