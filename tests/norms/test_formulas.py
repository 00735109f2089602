"""Normalizers of one formula, forward and backward, against torch's own or the formula; and their initial values."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.helpers.compare import assert_near, assert_same_with_gradients
from tests.helpers.weights import redraw
from tests.reference import channels_first
from tokennorm.norms import (
    Derf,
    DynamicTanh,
    GroupNorm,
    InstanceNorm,
    LocalLayerNorm,
    PowerNorm,
    PRepBN,
    RMSNorm,
    ScaleNorm,
    SeeDNorm,
    SwitchableNorm,
)  # fmt: skip


def tanh(x):
    return ((2 * x).exp() - 1) / ((2 * x).exp() + 1)


def erf(x):
    """By the normal distribution."""
    return 2 * torch.special.ndtr(2**0.5 * x) - 1


def with_neighbors(norm, x):
    """LayerNorm plus the sum of nine shifted copies, each times its entry of the kernels."""
    y = F.layer_norm(x, (12,), norm.weight, norm.bias, 0.1)
    around = F.pad(y, (0, 0, 1, 1, 1, 1))
    kernels = norm.depthwise[:, 0]
    return y + sum(around[:, i : i + 3, j : j + 5] * kernels[:, i, j] for i in range(3) for j in range(3))


def self_rescaled(norm, x):
    """The paper's equation, in a loop over the vectors of the multi-head form."""
    scales = []
    for part in torch.arange(12).chunk(norm.parts):
        product = x[..., part] @ norm.beta[part]
        scales.append(torch.tanh(product)[..., None] * norm.alpha[part] + norm.weight[part])
    return torch.cat(scales, dim=-1) * x / (x.pow(2).sum(-1, keepdim=True) / 12 + 0.1).sqrt()


def of_maps(function, **kwargs):
    return lambda n, x: channels_first(lambda maps: function(maps, weight=n.weight, bias=n.bias, eps=0.1, **kwargs), x)


FORMULAS = {
    'one group': (GroupNorm(12, eps=0.1, num_groups=1), of_maps(F.group_norm, num_groups=1)),
    'groups': (GroupNorm(12, eps=0.1, num_groups=3), of_maps(F.group_norm, num_groups=3)),
    'a group per channel': (GroupNorm(12, eps=0.1, num_groups=12), of_maps(F.instance_norm)),
    'InstanceNorm': (InstanceNorm(12, eps=0.1), of_maps(F.instance_norm)),
    'InstanceNorm, unbiased': (
        InstanceNorm(12, eps=0.1, unbiased=True),
        lambda n, x: (x - x.mean((1, 2), True)) / (x.var((1, 2), keepdim=True) + 0.1).sqrt() * n.weight + n.bias,
    ),
    'RMSNorm': (RMSNorm(12, eps=0.1), lambda n, x: F.rms_norm(x, (12,), n.weight, eps=0.1)),
    'ScaleNorm': (ScaleNorm(12), lambda n, x: n.weight * F.normalize(x, dim=-1)),
    'ScaleNorm, per channel': (ScaleNorm(12, per_channel=True), lambda n, x: n.weight * F.normalize(x, dim=-1)),
    'LocalLayerNorm': (LocalLayerNorm(12, eps=0.1), with_neighbors),
    'SeeDNorm': (SeeDNorm(12, eps=0.1, parts=3), self_rescaled),
    'SeeDNorm, one part': (SeeDNorm(12, eps=0.1, parts=1), self_rescaled),
    'DynamicTanh': (DynamicTanh(12), lambda n, x: n.weight * tanh(n.alpha * x) + n.bias),
    'Derf': (Derf(12), lambda n, x: n.weight * erf(n.alpha * x + n.shift) + n.bias),
}


@pytest.mark.parametrize('name', FORMULAS)
def test_norm_equals_its_formula(name):
    norm, formula = FORMULAS[name]
    redraw(norm.double())
    x = (2 * torch.randn(2, 3, 5, 12) + torch.linspace(-1, 1, 12)).double().requires_grad_()
    inputs = dict(x=x) | dict(norm.named_parameters())
    assert_same_with_gradients(norm.train()(x), formula(norm, x), inputs)
    assert_same_with_gradients(norm.eval()(x), formula(norm, x), inputs)


@pytest.mark.parametrize(
    ('build', 'expected'),
    [
        (lambda: DynamicTanh(4, alpha_init_value=0.25), dict(alpha=0.25, weight=1, bias=0)),
        (lambda: DynamicTanh(4), dict(alpha=0.5)),
        (lambda: Derf(4, alpha_init_value=0.25, shift_init_value=0.5), dict(alpha=0.25, shift=0.5, weight=1, bias=0)),
        (lambda: Derf(4), dict(alpha=0.5, shift=0)),
        (lambda: ScaleNorm(16), dict(weight=4)),  # the root of the channels
        (lambda: ScaleNorm(16, per_channel=True), dict(weight=4)),
        (lambda: RMSNorm(4), dict(weight=1)),
        (lambda: SeeDNorm(16), dict(weight=1, alpha=1, beta=0)),
        (lambda: LocalLayerNorm(4), dict(weight=1, bias=0, depthwise=0)),
        (lambda: SwitchableNorm(4), dict(mean_weight=1, var_weight=1, running_mean=0, running_var=1, weight=1, bias=0)),
        (lambda: PowerNorm(4), dict(running_phi=1, running_nu=0, iters=0, weight=1, bias=0)),
        (lambda: PRepBN(4), {'alpha': 1, 'step': 0, 'batch_norm.bn.running_mean': 0, 'batch_norm.bn.weight': 1}),
    ],
)
def test_initial_values(build, expected):
    norm = build()
    for value in norm.state_dict().values():
        value.fill_(7)
    norm.reset_parameters()
    for name, value in expected.items():
        assert (norm.state_dict()[name] == value).all(), name


@pytest.mark.parametrize('unbiased', [False, True])
def test_instance_norm_of_one_token_is_the_bias(unbiased):
    norm = InstanceNorm(4, unbiased=unbiased)
    nn.init.normal_(norm.bias)
    assert torch.equal(norm(torch.randn(2, 1, 1, 4)), norm.bias.expand(2, 1, 1, 4))


def test_unbiased_instance_norm_counts_the_tokens_of_each_image():
    norm = InstanceNorm(4, unbiased=True)
    x = torch.randn(2, 4, 5, 4)
    y = norm(x, torch.tensor([[4, 5], [2, 3]]))
    assert_near('whole', y[:1], norm(x[:1]))
    assert_near('part', y[1:, :2, :3], norm(x[1:, :2, :3]))
    expected = (x[1, :2, :3] - x[1, :2, :3].mean((0, 1))) / (x[1, :2, :3].flatten(0, 1).var(0) + 1e-5).sqrt()
    assert_near('formula', y[1, :2, :3], expected)


def test_scale_norm_has_one_weight_or_one_per_channel():
    """The first is that of older checkpoints."""
    assert ScaleNorm(16).weight.shape == (1,)
    assert ScaleNorm(16, per_channel=True).weight.shape == (16,)
    ScaleNorm(16).load_state_dict(dict(weight=torch.tensor([3.0])))


def test_scale_norm_survives_zeros():
    norm = ScaleNorm(16, eps=1e-3)
    x = torch.zeros(1, 1, 2, 16, requires_grad=True)
    y = norm(x)
    y.sum().backward()
    assert y.abs().max() == 0
    assert x.grad.isfinite().all()
    assert_near('eps', norm(torch.full((1, 16), 1e-5)), torch.full((1, 16), 4e-2))


def test_local_layer_norm_starts_equal_and_reads_no_padding():
    norm = LocalLayerNorm(4)
    x = torch.randn(2, 5, 6, 4)
    assert torch.equal(norm(x), F.layer_norm(x, (4,)))
    nn.init.normal_(norm.depthwise)
    padded = norm(x, torch.tensor([[5, 6], [3, 4]]))
    assert_near('whole', padded[:1], norm(x[:1]))
    assert_near('part', padded[1:, :3, :4], norm(x[1:, :3, :4]))


def test_seed_norm_starts_as_rms_norm_and_its_parts_divide_the_channels():
    x = torch.randn(2, 3, 5, 16)
    assert_near('start', SeeDNorm(16)(x), F.rms_norm(x, (16,), eps=1e-5))
    with pytest.raises(ValueError, match='SeeDNorm: parts=16 must divide num_features=24'):
        SeeDNorm(24)
