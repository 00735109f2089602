"""The measures of the DTN paper's figures against numbers worked out by hand, numpy, and the normalizers themselves."""

import math

import numpy as np
import pytest
import torch

from experiments.dtn_figures.metrics import (
    TOKEN,
    mean_cosine,
    mean_of,
    patch_scales,
    principal_components,
    relative_distance,
    relative_spread,
    row_of_p,
    token_magnitudes,
    variation_coefficient,
)
from tests.helpers.weights import redraw
from tests.reference import relative_positions
from tokennorm.layers import DualPatchEmbed
from tokennorm.norms import DTN, BatchNorm, InstanceNorm, LayerNorm


def test_magnitudes_are_norms_of_each_heads_channels():
    tokens = torch.tensor([[[3.0, 4.0, 0.0, 2.0], [6.0, 8.0, 0.0, -2.0]]])  # 1 x 2 tokens of 2 heads
    maps = token_magnitudes(tokens, 2)
    assert maps.tolist() == [[[5.0, 10.0]], [[2.0, 2.0]]]
    torch.testing.assert_close(relative_spread(maps), torch.tensor([2.5 / 7.5, 0.0]))


def test_variation_coefficient():
    """|(2 - 1) / 2| and |(-1 - 1) / -1|; a channel that is zero is left out."""
    tokens, mean = torch.tensor([[2.0, -1.0, 0.0]]), torch.tensor([1.0, 1.0, 1.0])
    torch.testing.assert_close(variation_coefficient(tokens, mean), torch.tensor([math.sqrt(0.25 + 4)]))
    torch.testing.assert_close(relative_distance(tokens, mean), torch.tensor([math.sqrt(6 / 5)]))
    assert variation_coefficient(tokens, tokens).item() == 0


NORMS = {
    'layer norm': lambda: LayerNorm(12),
    'instance norm': lambda: InstanceNorm(12),
    'batch norm': lambda: BatchNorm(12),
    'dtn': lambda: DTN(12, 4),
    'dtn pooled': lambda: DTN(12, 4, pool=2),
    'dtn published': lambda: DTN(12, 4, form='published'),
    'dtn only var': lambda: DTN(12, 4, only_var=True),
}


@pytest.mark.parametrize('name', NORMS)
def test_means_are_what_norms_take_off(name):
    """Read from the norm itself: with weight 1 and bias 0 it returns (x - mu) / sqrt(sigma^2 + eps), and under an eps
    of 1e12 the rest of the root does not count. The published form divides by eps beforehand: there, signs."""
    norm = redraw(NORMS[name]().double().eval())
    if name == 'batch norm':
        torch.nn.init.normal_(norm.bn.running_mean)
    x = 3 + torch.randn(5, 7, 12, dtype=torch.float64)
    inner = norm.bn if name == 'batch norm' else norm
    inner.weight.data.fill_(1)
    inner.bias.data.zero_()
    mean = mean_of(norm, x)
    if name == 'dtn published':
        assert torch.equal(norm(x[None])[0].sign(), (x - mean).sign())
        return
    inner.eps = 1e12
    torch.testing.assert_close(norm(x[None])[0] * 1e6, (x - mean).expand_as(x), rtol=1e-6, atol=1e-9)


def test_published_mean_is_in_the_units_of_the_tokens():
    norm = DTN(12, 4, form='published').double()
    torch.nn.init.normal_(norm.mean_logit)
    x = 3 + torch.randn(5, 7, 12, dtype=torch.float64)
    heads = x.view(5, 7, 4, 3)
    scale = (heads.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt().expand(heads.shape).reshape(x.shape)
    paper = DTN(12, 4).double()
    paper.load_state_dict(norm.state_dict())
    torch.testing.assert_close(mean_of(norm, x), mean_of(paper, x / scale) * scale)


def test_principal_components_are_those_of_numpy():
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(40, 6)) @ rng.normal(size=(6, 6)) + 5
    centered = tokens - tokens.mean(0)
    left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
    points, shares = principal_components(torch.from_numpy(tokens))
    assert points.shape == (40, 2)
    np.testing.assert_allclose(points.abs().numpy(), np.abs(left * sizes)[:, :2], rtol=1e-9)
    np.testing.assert_allclose(shares, (sizes**2 / (sizes**2).sum())[:2])
    # The sign does not depend on that of the tokens' order.
    again, _ = principal_components(torch.from_numpy(tokens[::-1].copy()))
    np.testing.assert_allclose(again.flip(0), points, rtol=1e-9)


def test_mean_cosine():
    """Of the pairs of (1, 0), (2, 0) and (0, 3) one is parallel and two are at right angles."""
    assert mean_cosine(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])) == pytest.approx(1 / 3)


def test_rows_of_p_are_those_of_the_reference():
    position = torch.tensor([[-1.0, 1.0, -0.5], [-0.2, 0.0, 0.7], [0.01, -0.3, 0.1]])
    rows = row_of_p(position, grid=(5, 8), token=(3, 6))
    expected = (relative_positions(5, 8) @ position.double().T).softmax(dim=1)[3 * 8 + 6]  # (T, N)
    torch.testing.assert_close(rows, expected.T.reshape(3, 5, 8))
    assert TOKEN[0] * 14 + TOKEN[1] == 91  # the paper's token
    norm = DTN(8, 4)
    assert row_of_p(norm.position)[:, 6, 7].tolist() == pytest.approx([row_of_p(norm.position).amax().item()] * 4)


def test_a_scale_is_at_the_place_of_its_pixel():
    """The scale at (row 1, column 2, channel 0) is that of the one pixel whose change it multiplies."""
    stem = DualPatchEmbed(3, 8, patch_size=4)
    torch.nn.init.normal_(stem.patch_norm.weight)
    scales = patch_scales(torch.nn.Sequential(torch.nn.ReLU(), stem))
    assert scales.shape == (4, 4, 3)
    outputs = []
    stem.patch_norm.register_forward_hook(lambda _, inputs, output: outputs.append((inputs[0], output)))
    image = torch.zeros(1, 3, 4, 4)
    image[0, 0, 1, 2] = 1
    stem(image)
    (before, after), place = outputs[0], outputs[0][0].argmax()
    normalized = (before - before.mean()) / (before.var(unbiased=False) + 1e-6).sqrt()
    ratio = (after.flatten()[place] / normalized.flatten()[place]).item()
    assert ratio == pytest.approx(scales[1, 2, 0].item(), rel=1e-4)
