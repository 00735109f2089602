"""What all normalizers have in common: their names, their layout and precision, and their place in the backbones."""

from itertools import cycle

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tests.helpers.backbones import BACKBONES, PYRAMIDS, build
from tests.helpers.compare import assert_near
from tests.helpers.norms import NORMS, cfg_of
from tests.helpers.weights import redraw
from tokennorm import norms
from tokennorm.layers.building import build_norm
from tokennorm.norms import DTN, LayerNorm
from tokennorm.ops.moments import tokens_inside

BASES = dict(Derf=norms.DynamicTanh, IN=nn.InstanceNorm2d, GN=nn.GroupNorm)
ACROSS_TOKENS = ['DTN', 'LocalLayerNorm', 'BN', 'IN', 'GN', 'SN', 'PowerNorm', 'PRepBN']
BASE = (
    'derive its class from TokenNorm (statistics within a token), or from GridNorm and then a norm of torch (across '
    'tokens), both of norms/layer_norm.py, and write `_normalize`, as docs/guides/add_normalizer.md shows'
)
RUNNING = ['BN', 'SyncBN', 'SN', 'PowerNorm', 'PRepBN']
of_every_norm = pytest.mark.parametrize('name', NORMS)


def statistics_of(model):
    return {name: buffer.clone() for name, buffer in model.named_buffers() if 'running' in name}


@of_every_norm
def test_its_name_builds_it_with_channels_last(name):
    norm = build_norm(cfg_of(name), 8, 2)
    assert type(norm) is NORMS[name], f'{name} is another class in a registry: rename it'
    module = type(norm).__module__
    assert module == f'tokennorm.norms.{module.rpartition(".")[2]}', (
        f'{name}: move it from {module} to a file in norms/'
    )
    x = torch.randn(2, 3, 5, 8)
    shapes = {norm(x).shape, norm(x, torch.tensor([[3, 5], [2, 2]])).shape}
    assert shapes == {x.shape}, f'{name} must keep the shape (B, H, W, C), with and without `valid`: {BASE}'
    assert norm(x).is_contiguous(), f'{name} must return a contiguous tensor: {BASE}'


@of_every_norm
def test_torchs_own_class_holds_its_parameters(name):
    norm = build_norm(cfg_of(name), 8, 2)
    if name in ('BN', 'SyncBN'):
        assert isinstance(norm.bn, _BatchNorm)
        assert list(norm.parameters(recurse=False)) == []
    else:
        base = BASES.get(name, nn.LayerNorm)
        why = f'so that mmdet and timm know it as a norm: {BASE}; if torch has another class for it: BASES here'
        assert isinstance(norm, base), f'{name} must be a {base.__name__}, {why}'
        assert {type(p) for p in norm.parameters()} == {nn.Parameter}, f'{name}: add parameters by `_add_parameter`'
    cfg = dict(optimizer=dict(type='SGD', lr=1, weight_decay=1), paramwise_cfg=dict(norm_decay_mult=0))
    groups = build_optim_wrapper(nn.Sequential(norm, nn.Linear(8, 8)), cfg).optimizer.param_groups
    decayed = [p for group in groups for p in group['params'] if group['weight_decay'] > 0]
    shapes = [tuple(p.shape) for p in decayed]
    assert shapes == [(8, 8), (8,)], f'norm_decay_mult=0 must reach all parameters of {name}: {BASE}'


@pytest.mark.parametrize('name', [name for name in NORMS if name != 'DTN'])
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_statistics_are_float32_and_the_output_is_as_the_input(name, dtype):
    norm = build_norm(cfg_of(name), 8)
    x = (20 + torch.randn(2, 16, 16, 8)).to(dtype)  # squares that sum up to more than float16 holds
    with torch.autocast('cpu', dtype=dtype):
        y = norm(x)
    assert y.dtype == dtype, f'{name} must return the dtype of its input, also under autocast: {BASE}'
    assert_near('y', y, build_norm(cfg_of(name), 8)(x.float()), dtype=dtype)


@pytest.mark.parametrize('name', NORMS)
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_a_norm_of_half_precision_takes_such_tokens(name, dtype):
    """As in `model.half()`, in training and behind it, padded and not."""
    norm, like = (build_norm(cfg_of(name), 8).to(of) for of in (dtype, torch.float32))
    x = torch.randn(2, 4, 5, 8).to(dtype)
    for valid in (None, torch.tensor([[4, 5], [2, 3]])):
        for training in (True, False):
            like.load_state_dict(norm.state_dict())  # running statistics are rounded too
            y, expected = norm.train(training)(x, valid), like.train(training)(x.float(), valid)
            assert y.dtype == dtype, f'{name} must return the dtype of its input, also in half precision: {BASE}'
            assert_near(f'training={training}, valid={valid}', y, expected, dtype=dtype)


@pytest.mark.parametrize('name', [name for name in ACROSS_TOKENS if name != 'BN'])  # torch's statistics are float32
def test_float64_keeps_its_digits_in_a_padded_batch(name):
    norm = build_norm(cfg_of(name), 8, 2).double()
    x = torch.randn(1, 5, 6, 8, dtype=torch.float64)
    padded = norm(x, torch.tensor([[3, 5]]))[:, :3, :5]
    assert_near('y', padded, build_norm(cfg_of(name), 8, 2).double()(x[:, :3, :5]), dtype=torch.float64)


@pytest.mark.parametrize('name', ACROSS_TOKENS)
def test_an_image_without_whole_tokens_counts_as_one_token(name):
    """Smaller than a token: its statistics would otherwise be 0 / 0. DTN's kernel takes float32, its eager form all."""
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(2, 4, 5, 8, dtype=dtype)
        y = build_norm(cfg_of(name), 8, 2)(x, torch.tensor([[4, 5], [0, 0]]))
        assert y.isfinite().all()
        assert torch.equal(y, build_norm(cfg_of(name), 8, 2)(x, torch.tensor([[4, 5], [1, 1]])))


@pytest.mark.parametrize('name', [*ACROSS_TOKENS, 'TaperNorm'])
@pytest.mark.parametrize('value', [torch.nan, torch.inf])
def test_padding_that_is_not_finite_changes_no_image(name, value):
    """Neither outputs nor gradients nor statistics: 0 times NaN, and 0 times infinity, is NaN."""
    norms = [redraw(build_norm(cfg_of(name), 8, 2)) for _ in range(2)]
    norms[1].load_state_dict(norms[0].state_dict())
    valid, given = torch.tensor([[4, 5], [2, 3]]), torch.randn(2, 4, 5, 8)
    inside = tokens_inside(given, valid)
    results = []
    for norm, padding in zip(norms, (0.0, value), strict=True):
        x = given.where(inside, padding).requires_grad_()
        y = norm(x, valid)
        y.where(inside, 0).square().sum().backward()
        state = {key: item for key, item in norm.state_dict().items() if item.is_floating_point()}
        results.append(dict(y=y.where(inside, 0), grad=x.grad.where(inside, 0), **state))
    for key, expected in results[0].items():
        assert_near(key, results[1][key], expected, 'backward')


@of_every_norm
def test_an_empty_batch_changes_no_statistics(name):
    norm = build_norm(cfg_of(name), 8, 2).train()
    norm(torch.randn(2, 3, 5, 8))
    before = {key: item.clone() for key, item in norm.state_dict().items()}
    for valid in (None, torch.empty(0, 2, dtype=torch.int64)):
        assert norm(torch.empty(0, 3, 5, 8), valid).shape == (0, 3, 5, 8)
    after = norm.state_dict()
    assert all(item.isfinite().all() for item in after.values())
    if name == 'TaperNorm':  # both averages alike, which cancels out
        assert_near('c', after['energy'][:1] / after['energy'][1:], before['energy'][:1] / before['energy'][1:])
    counts = {key for key in after if key.endswith(('step', 'num_batches_tracked', 'energy'))}
    for key in after.keys() - counts:
        assert torch.equal(after[key], before[key]), key


@pytest.mark.parametrize(('cls', 'args'), [(DTN, (8, 2)), (LayerNorm, (8,))])
def test_parameters_from_the_meta_device(cls, args):
    """As `nn.LayerNorm`: filled by `reset_parameters`."""
    with torch.device('meta'):
        norm = cls(*args)
    norm.to_empty(device='cpu')
    for parameter in norm.parameters():
        nn.init.constant_(parameter, 7)
    norm.reset_parameters()
    for (name, actual), expected in zip(norm.named_parameters(), cls(*args).parameters(), strict=True):
        assert torch.equal(actual, expected), name


@pytest.mark.parametrize('name', ACROSS_TOKENS)
def test_statistics_across_tokens_need_a_grid(name):
    norm = build_norm(cfg_of(name), 8, 2)
    for wrong in (torch.randn(2, 15, 8), torch.randn(2, 8, 3, 5)):
        with pytest.raises(ValueError, match=r'(?i)norm|dtn'):
            norm(wrong)
    x = torch.randn(2, 3, 5, 8)
    for wrong in (torch.tensor([[3, 5]]), torch.ones(2, 2), torch.tensor([3, 5])):
        with pytest.raises(ValueError, match='valid of shape'):
            norm(x, wrong)


@pytest.mark.parametrize(('name', 'cls'), [*zip(NORMS, cycle(PYRAMIDS))])
def test_backbones_run_with_it_everywhere(cls, name):
    """In blocks and out of them, at an odd size, with padding in the batch, recomputed or not."""
    model = build(cls, token_norm_cfg=cfg_of(name), norm_cfg=cfg_of(name), token_norm_stages=3)
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(NORMS[name]) >= 13
    if name != 'LN':
        assert norms.LayerNorm not in kinds
    image = torch.randn(2, 3, 75, 101)
    image.image_sizes = torch.tensor([[75, 101], [60, 70]])
    outs = model(image)
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    assert all(out.isfinite().all() for out in outs)
    for key, p in model.named_parameters():
        assert p.grad is not None, f'{key} is not in the formula of {name}'
        assert p.grad.isfinite().all(), key
        if name == 'SeeDNorm' and key.endswith('alpha'):
            continue  # beta is 0 at first
        if name == 'PRepBN' and key.endswith(('alpha', 'batch_norm.bn.weight', 'batch_norm.bn.bias')):
            continue  # its first step is LayerNorm
        if name == 'TaperNorm' and key.endswith('scale'):
            continue  # the gate is 1 at first
        # Zero but for rounding: of a bias in front of a norm that takes channels' means away.
        assert p.grad.abs().max() > 0 or key.endswith(('proj.bias', 'sr.bias')), key
    assert model.eval()(image)[-1].isfinite().all()


@pytest.mark.parametrize(('name', 'cls'), [*zip(RUNNING, cycle(BACKBONES))])
def test_norm_eval_keeps_running_statistics(cls, name):
    for norm_eval in (True, False):
        model = build(cls, token_norm_cfg=cfg_of(name), norm_cfg=cfg_of(name), norm_eval=norm_eval).train()
        before = statistics_of(model)
        assert before
        sum(out.square().mean() for out in model(torch.randn(2, 3, 64, 64))).backward()
        for key, value in statistics_of(model).items():
            assert torch.equal(value, before[key]) is norm_eval, key
