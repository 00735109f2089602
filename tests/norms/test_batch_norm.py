"""BatchNorm against torch's own, its running statistics, and the hosts' conversions."""

import pytest
import torch
from mmengine.model import convert_sync_batchnorm, revert_sync_batchnorm
from torch import nn

from tests.helpers.compare import assert_near, assert_same_with_gradients
from tests.helpers.weights import redraw
from tests.reference import channels_first
from tokennorm.norms import BatchNorm, SyncBatchNorm


def pair(**kwargs):
    """Ours, and torch's own with the same random parameters."""
    ours, theirs = BatchNorm(6, **kwargs).double(), nn.BatchNorm2d(6, **kwargs).double()
    redraw(ours)
    theirs.load_state_dict(ours.bn.state_dict())
    return ours, theirs


@pytest.mark.parametrize('kwargs', [{}, dict(eps=0.1, momentum=None)])
def test_equals_torchs_in_training_and_in_eval_mode(kwargs):
    ours, theirs = pair(**kwargs)
    for train in (True, True, False):
        ours.train(train)
        theirs.train(train)
        x = (2 * torch.randn(2, 3, 5, 6) + 1).double().requires_grad_()
        inputs = [dict(x=x) | dict(norm.named_parameters()) for norm in (ours, theirs)]
        assert_same_with_gradients(ours(x), channels_first(theirs, x), *inputs)
        for name, value in theirs.state_dict().items():
            assert_near(name, ours.bn.state_dict()[name].double(), value.double(), dtype=x.dtype)
    assert ours.bn.num_batches_tracked == 2


def test_padding_is_left_out_of_the_batchs_statistics():
    ours, theirs = pair(eps=1e-3)
    x = torch.randn(2, 4, 5, 6).double().requires_grad_()
    valid = torch.tensor([[4, 5], [2, 3]])
    y = ours(x, valid)
    tokens = torch.cat([x[0].flatten(0, 1), x[1, :2, :3].flatten(0, 1)])
    expected = theirs(tokens[:, :, None, None])[:, :, 0, 0]
    assert_near('whole image', y[0].flatten(0, 1), expected[:20], dtype=x.dtype)
    assert_near('padded image', y[1, :2, :3].flatten(0, 1), expected[20:], dtype=x.dtype)
    assert_near('running variance', ours.bn.running_var, theirs.running_var, dtype=x.dtype)
    assert_near('padding', y[1, 2:], channels_first(theirs.eval(), x)[1, 2:], dtype=x.dtype)
    before, _ = torch.autograd.grad(y.square().sum(), [x, ours.bn.weight], retain_graph=True)
    ours(x, valid)  # another batch before the backward pass of this one
    after, _ = torch.autograd.grad(y.square().sum(), [x, ours.bn.weight])
    assert torch.equal(before, after)
    ours.eval()
    assert_near('in eval mode', ours(x, valid), ours(x), dtype=x.dtype)


@pytest.mark.parametrize('convert', [nn.SyncBatchNorm.convert_sync_batchnorm, convert_sync_batchnorm])
def test_the_hosts_convert_it_to_synchronized_norms_and_back(convert):
    model = nn.Sequential(pair()[0], nn.Linear(6, 6).double())
    x = torch.randn(2, 6, 6, 6).double()  # a side of C tokens: the channels must not be taken from another axis
    expected = model(x)
    converted = convert(model)
    assert type(converted[0].bn) is nn.SyncBatchNorm
    assert_near('synchronized', converted(x), expected, dtype=x.dtype)
    reverted = revert_sync_batchnorm(converted)
    assert not any(isinstance(module, nn.SyncBatchNorm) for module in reverted.modules())
    assert_near('reverted', reverted(x), expected, dtype=x.dtype)
    assert reverted[0].bn.num_batches_tracked == 3


def test_a_synchronized_norm_is_torchs_inside():
    norm = SyncBatchNorm(6, momentum=0.2)
    assert type(norm.bn) is nn.SyncBatchNorm
    assert norm.bn.momentum == 0.2
    x = torch.randn(2, 3, 4, 6)
    assert_near('y', norm(x), BatchNorm(6)(x))
    assert list(norm.state_dict()) == list(BatchNorm(6).state_dict())
