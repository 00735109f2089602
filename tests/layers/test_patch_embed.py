"""The patch embeddings against torch's convolution and Dual PatchNorm's four lines."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from mmdet.models.layers import PatchEmbed as MMDetPatchEmbed
from torch import nn

from tests.helpers.compare import assert_near
from tests.helpers.weights import redraw
from tokennorm.layers import DualPatchEmbed, PatchEmbed


@pytest.mark.parametrize('size', [(16, 24), (17, 23), (3, 1)])
def test_patch_embed_equals_mmdets(size):
    ours = redraw(PatchEmbed(3, 8, patch_size=4, norm_cfg=dict(type='LN', eps=1e-6)), 0.5)
    theirs = MMDetPatchEmbed(3, 8, kernel_size=4, stride=4, norm_cfg=dict(type='LN', eps=1e-6))
    theirs.load_state_dict({k.replace('proj.', 'projection.'): v for k, v in ours.state_dict().items()})
    image = torch.randn(2, 3, *size)
    expected, (height, width) = theirs(image)
    assert (height, width) == (-(-size[0] // 4), -(-size[1] // 4))
    assert_near('tokens', ours(image), expected.unflatten(1, (height, width)))


def with_weights_of(conv, **kwargs):
    """Dual PatchNorm with the projection of a plain stem: (D, C, ph, pw) in the order (ph, pw, C)."""
    dual = DualPatchEmbed(3, 8, **kwargs)
    dual.norm = nn.Identity()
    dual.proj.weight.data = rearrange(conv.proj.weight.data, 'd c ph pw -> d (ph pw c)')
    dual.proj.bias.data = conv.proj.bias.data
    return dual


@pytest.mark.parametrize(('kernel_size', 'stride'), [(7, 4), (3, 2), (5, 1)])
@pytest.mark.parametrize('size', [(16, 24), (17, 23), (3, 1)])
def test_overlapping_windows_are_the_padded_convolutions(kernel_size, stride, size):
    """One window a patch, centered on its first pixel: torch's convolution with a padding of kernel_size // 2."""
    conv = redraw(PatchEmbed(3, 8, patch_size=stride, kernel_size=kernel_size), 0.5)
    dual = with_weights_of(conv, patch_size=stride, kernel_size=kernel_size)
    dual.patch_norm = nn.Identity()
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


@pytest.mark.parametrize('patch_size', [(4, 2), [4, 4], (2, 4)])
def test_patches_may_be_rectangles(patch_size):
    height, width = patch_size
    conv = redraw(PatchEmbed(3, 8, patch_size=patch_size), 0.5)
    dual = with_weights_of(conv, patch_size=patch_size)
    image = torch.randn(2, 3, 7, 11)
    padded = F.pad(image, (0, 12 - 11, 0, 8 - 7))
    expected = F.conv2d(padded, conv.proj.weight, conv.proj.bias, stride=(height, width))
    assert_near('plain', conv(image), rearrange(expected, 'b d h w -> b h w d'))
    patches = rearrange(padded, 'b c (h ph) (w pw) -> b h w (ph pw c)', ph=height, pw=width)
    assert_near(
        'dual', dual(image), F.linear(F.layer_norm(patches, patches.shape[-1:], eps=1e-6), *dual.proj.parameters())
    )


@pytest.mark.parametrize('patch_size', [(4,), (4, 0), 0, '44', (4, 4.0), 4.0])
@pytest.mark.parametrize('stem', [PatchEmbed, DualPatchEmbed])
def test_other_patch_sizes_are_refused(stem, patch_size):
    with pytest.raises(ValueError, match=f'{stem.__name__}: patch_size=.* must be an integer of at least 1, or'):
        stem(3, 8, patch_size=patch_size)
