"""The patch embeddings against torch's convolution and Dual PatchNorm's four lines."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from mmdet.models.layers import PatchEmbed as MMDetPatchEmbed
from torch import nn

from tests.helpers.compare import assert_near
from tokennorm.layers import DualPatchEmbed, PatchEmbed


def randomize(module):
    for p in module.parameters():
        nn.init.normal_(p, std=0.5)
    return module


@pytest.mark.parametrize('size', [(16, 24), (17, 23), (3, 1)])
def test_patch_embed_equals_mmdets(size):
    ours = randomize(PatchEmbed(3, 8, patch_size=4, norm_cfg=dict(type='LN', eps=1e-6)))
    theirs = MMDetPatchEmbed(3, 8, kernel_size=4, stride=4, norm_cfg=dict(type='LN', eps=1e-6))
    theirs.load_state_dict({k.replace('proj.', 'projection.'): v for k, v in ours.state_dict().items()})
    image = torch.randn(2, 3, *size)
    expected, (height, width) = theirs(image)
    assert (height, width) == (-(-size[0] // 4), -(-size[1] // 4))
    assert_near('tokens', ours(image), expected.unflatten(1, (height, width)))


def test_linear_projection_equals_the_strided_convolution():
    """A convolution's weight (D, C, ph, pw) is the linear one after permuting its patch to (ph, pw, C)."""
    conv = randomize(PatchEmbed(3, 8, patch_size=4))
    dual = DualPatchEmbed(3, 8, patch_size=4)
    dual.patch_norm, dual.norm = nn.Identity(), nn.Identity()
    dual.proj.weight.data = rearrange(conv.proj.weight.data, 'd c ph pw -> d (ph pw c)')
    dual.proj.bias.data = conv.proj.bias.data
    for size in [(16, 24), (17, 23)]:
        image = torch.randn(2, 3, *size)
        assert_near('tokens', dual(image), conv(image))


@pytest.mark.parametrize(('kernel_size', 'stride'), [(7, 4), (3, 2), (5, 1)])
@pytest.mark.parametrize('size', [(16, 24), (17, 23), (3, 1)])
def test_overlapping_windows_are_the_padded_convolutions(kernel_size, stride, size):
    """One window a patch, centered on its first pixel: torch's convolution with a padding of kernel_size // 2."""
    conv = randomize(PatchEmbed(3, 8, patch_size=stride, kernel_size=kernel_size))
    dual = DualPatchEmbed(3, 8, patch_size=stride, kernel_size=kernel_size)
    dual.patch_norm, dual.norm = nn.Identity(), nn.Identity()
    dual.proj.weight.data = rearrange(conv.proj.weight.data, 'd c ph pw -> d (ph pw c)')
    dual.proj.bias.data = conv.proj.bias.data
    image = torch.randn(2, 3, *size)
    expected = F.conv2d(image, conv.proj.weight, conv.proj.bias, stride=stride, padding=kernel_size // 2)
    assert expected.shape[2:] == (-(-size[0] // stride), -(-size[1] // stride))
    for stem in (conv, dual):
        assert_near(type(stem).__name__, stem(image), rearrange(expected, 'b d h w -> b h w d'))


def test_overlapping_patches_are_normalized_with_zero_padding():
    """A corner window of 7 x 7 holds 4 x 4 pixels: its mean is over 147 values, of which 48 are the image's."""
    stem = DualPatchEmbed(3, 8, patch_size=4, kernel_size=7)
    stem.proj, stem.norm = nn.Identity(), nn.Identity()
    image = torch.randn(1, 3, 8, 8)
    window = torch.zeros(7, 7, 3)
    window[3:, 3:] = rearrange(image[0, :, :4, :4], 'c h w -> h w c')
    mean = image[0, :, :4, :4].sum() / 147
    expected = (window - mean) / ((window - mean).square().mean() + 1e-6).sqrt()
    assert_near('corner', stem(image)[0, 0, 0], expected.flatten())


@pytest.mark.parametrize('stem', [PatchEmbed, DualPatchEmbed])
@pytest.mark.parametrize('kernel_size', [3, 6])
def test_a_window_holds_its_patch_and_has_a_center(stem, kernel_size):
    with pytest.raises(ValueError, match=f'kernel_size={kernel_size} must be patch_size=4, or odd and larger'):
        stem(3, 8, patch_size=4, kernel_size=kernel_size)
