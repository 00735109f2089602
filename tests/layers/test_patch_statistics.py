"""Statistics of patches that the plain stem adds."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange

from tests.helpers.compare import assert_near
from tests.helpers.weights import redraw
from tokennorm.layers import PatchEmbed


@pytest.mark.parametrize(('patch_size', 'kernel_size', 'norm_cfg'), [(4, None, dict(type='LN')), (2, 5, None)])
def test_plain_stem_adds_statistics_before_its_norm(patch_size, kernel_size, norm_cfg):
    stem = redraw(PatchEmbed(3, 6, patch_size, norm_cfg, kernel_size, statistics=True), 0.5).double()
    image = torch.randn(2, 3, 8, 12).double()
    side, padding = (kernel_size, kernel_size // 2) if kernel_size else (patch_size, 0)
    columns = F.unfold(image, side, stride=patch_size, padding=padding)
    patches = rearrange(columns, 'b (c p) (h w) -> b h w c p', c=3, w=12 // patch_size)
    deviation = patches.flatten(-2).var(-1, unbiased=False, keepdim=True).sqrt()
    statistics = torch.cat([patches.mean(-1), torch.log(deviation + 0.05)], dim=-1)
    tokens = F.conv2d(image, stem.proj.weight, stem.proj.bias, stride=patch_size, padding=padding)
    expected = rearrange(tokens, 'b d h w -> b h w d') + F.linear(statistics, *stem.statistics.parameters())
    if norm_cfg is not None:
        expected = F.layer_norm(expected, (6,), stem.norm.weight, stem.norm.bias, 1e-5)
    assert_near('tokens', stem(image), expected, dtype=torch.float64)
