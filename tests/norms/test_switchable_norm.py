"""SwitchableNorm against a transcription of the paper's equations, its limits, and its running statistics."""

import pytest
import torch
from torch import nn

from tests.helpers.compare import assert_near, assert_same_with_gradients
from tests.helpers.weights import redraw
from tests.reference import channels_first, switchable_norm
from tokennorm.norms import BatchNorm, GroupNorm, InstanceNorm, SwitchableNorm


def test_equals_the_transcription_in_training():
    norm = redraw(SwitchableNorm(6, eps=0.1).double())
    x = (2 * torch.randn(3, 4, 5, 6) + torch.arange(6)).double().requires_grad_()
    expected = switchable_norm(x, *norm.parameters(), eps=0.1)
    assert_same_with_gradients(norm(x), expected, dict(x=x) | dict(norm.named_parameters()))


@pytest.mark.parametrize(
    ('chosen', 'other'), [(0, InstanceNorm(6)), (1, GroupNorm(6, num_groups=1)), (2, BatchNorm(6))]
)
def test_all_weight_on_one_is_that_norm(chosen, other):
    norm = SwitchableNorm(6)
    with torch.no_grad():
        norm.mean_weight[chosen] = norm.var_weight[chosen] = 100
    x = 2 * torch.randn(3, 4, 5, 6) + 1
    assert_near('y', norm(x), other(x))


def test_running_statistics_are_used_in_eval_mode():
    norm = SwitchableNorm(6, momentum=0.25)
    batches = [2 * torch.randn(3, 4, 5, 6) + 1 for _ in range(2)]
    for x in batches:
        norm(x)
    moments = [(x.mean((0, 1, 2)), x.var((0, 1, 2), correction=0)) for x in batches]
    for kind, start in enumerate((0, 1)):
        expected = 0.75**2 * start + 0.75 * 0.25 * moments[0][kind] + 0.25 * moments[1][kind]
        assert_near('running', (norm.running_mean, norm.running_var)[kind], expected)
    with torch.no_grad():
        norm.mean_weight[2] = norm.var_weight[2] = 100
    batch_norm = nn.BatchNorm2d(6).eval()
    batch_norm.load_state_dict(norm.state_dict(), strict=False)
    before = norm.running_mean.clone()
    assert_near('y', norm.eval()(x), channels_first(batch_norm, x))
    assert torch.equal(norm.running_mean, before)


def test_padding_is_left_out():
    norm = SwitchableNorm(6)
    x = torch.randn(2, 4, 5, 6)
    valid = torch.tensor([[4, 5], [2, 3]])
    y = norm(x, valid)
    tokens = torch.cat([x[0].flatten(0, 1), x[1, :2, :3].flatten(0, 1)])
    assert_near('running mean', norm.running_mean, 0.1 * tokens.mean(0))
    assert_near('running variance', norm.running_var, 0.9 + 0.1 * tokens.var(0, correction=0))
    x[1, 2:], x[1, :, 3:] = 100, 100
    again = norm(x, valid)
    assert_near('whole image', again[0], y[0])
    assert_near('padded image', again[1, :2, :3], y[1, :2, :3])
