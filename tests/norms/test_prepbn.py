"""PRepBN against a transcription of the authors' LinearNorm and RepBN: training, resuming, folding, their weights."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from experiments.prepbn.fold_norms import fold_norms
from experiments.prepbn.slab import from_published_slab
from tests.helpers import pvt, swin
from tests.helpers.compare import assert_near, assert_same_with_gradients
from tests.helpers.pvt_v2 import small_pvt_v2
from tests.helpers.vit import classifier
from tokennorm.norms import PRepBN
from tokennorm.registry import MODELS

BACKBONES = {
    'PVT': lambda cfg: pvt.small_pvt(token_norm_cfg=cfg, norm_cfg=cfg, token_norm_stages=4, pretrain_img_size=64),
    'Swin': lambda cfg: swin.small_swin(token_norm_cfg=cfg, norm_cfg=cfg),
    'ViT': lambda cfg: classifier(norm_cfg=cfg, l_dtn=0),
}
AUTHORS = {
    'PVT': pvt.published_layout,
    'Swin': partial(swin.published_layout, classifier=False),
    'ViT': lambda model: model.state_dict(),
}


class RepBN(nn.Module):
    """SLAB, classification/models/prepbn.py: y = BN(x) + alpha * x over (B, N, C)."""

    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1))
        self.bn = nn.BatchNorm1d(channels)

    def forward(self, x):
        return self.bn(x.transpose(1, 2)).transpose(1, 2) + self.alpha * x


@MODELS.register_module(force=True)
class PublishedPRepBN(nn.Module):
    """The same file's LinearNorm, called with (B, H, W, C)."""

    is_token_norm = True

    def __init__(self, num_features, eps=1e-5, steps=300000):
        super().__init__()
        self.register_buffer('warm', torch.tensor(0))
        self.register_buffer('iter', torch.tensor(steps))
        self.register_buffer('total_step', torch.tensor(steps))
        self.norm1 = nn.LayerNorm(num_features, eps=eps)
        self.norm2 = RepBN(num_features)

    def forward(self, x, valid=None):
        tokens = x.flatten(1, 2)
        out = self.norm2(tokens)
        if self.training:
            share = self.iter / self.total_step
            if self.iter > 0:
                self.iter.copy_(self.iter - 1)
            out = share * self.norm1(tokens) + (1 - share) * out
        return out.view_as(x)


def randomize(module):
    for p in module.parameters():
        nn.init.normal_(p, std=0.3)
    for name, buffer in module.named_buffers():
        if name.endswith(('running_mean', 'running_var')):
            nn.init.uniform_(buffer, 0.5, 2)


def theirs_to_ours(state_dict):
    names = {'norm1.': '', 'norm2.bn.': 'batch_norm.bn.', 'norm2.alpha': 'alpha'}
    converted = {}
    for key, value in state_dict.items():
        for theirs, own in names.items():
            key = own + key.removeprefix(theirs) if key.startswith(theirs) else key
        converted[key] = value
    return converted


def pair(steps=4):
    published = PublishedPRepBN(6, steps=steps).double()
    randomize(published)
    norm = PRepBN(6, steps=steps).double()
    shared = theirs_to_ours(published.state_dict())
    norm.load_state_dict({key: value for key, value in shared.items() if key in norm.state_dict()}, strict=False)
    return norm, published


def test_equals_the_published_layer_in_training_and_in_eval_mode():
    norm, published = pair()
    for train in (True,) * 6 + (False,):
        norm.train(train)
        published.train(train)
        x = (2 * torch.randn(2, 3, 5, 6) + 1).double().requires_grad_()
        ours, theirs = dict(norm.named_parameters()), theirs_to_ours(dict(published.named_parameters()))
        wanted = dict(x=x) | {name: theirs[name] for name in ours}
        assert_same_with_gradients(norm(x), published(x), dict(x=x) | ours, wanted)
    assert norm.step == 6
    assert_near('running variance', norm.batch_norm.bn.running_var, published.norm2.bn.running_var, dtype=x.dtype)


def test_mixing_continues_from_a_checkpoint():
    whole, x = PRepBN(6, steps=5), torch.randn(3, 2, 3, 4, 6)
    half = copy.deepcopy(whole)
    expected = [whole(part) for part in x]
    half(x[0])
    resumed = PRepBN(6, steps=5)
    resumed.load_state_dict(half.state_dict())
    for part, want in zip(x[1:], expected[1:], strict=True):
        assert torch.equal(resumed(part), want)


def test_activation_checkpointing_counts_a_step_once():
    plain = PRepBN(6, steps=3)
    randomize(plain)
    recomputed = copy.deepcopy(plain)
    for _ in range(3):
        x = torch.randn(2, 3, 4, 6, requires_grad=True)
        [expected] = torch.autograd.grad(plain(x).square().sum(), [x])
        [grad] = torch.autograd.grad(checkpoint(recomputed, x, use_reentrant=False).square().sum(), [x])
        assert_near('gradient of x', grad, expected, 'backward')
    assert plain.step == recomputed.step == 3


LINEAR = pvt.ARCH | dict(linear=True)
FOLDED = BACKBONES | {'PVTv2, linear': lambda cfg: small_pvt_v2(arch=LINEAR, token_norm_cfg=cfg, norm_cfg=cfg)}


@pytest.mark.parametrize('name', FOLDED)
def test_folding_keeps_the_outputs(name):
    model = FOLDED[name](dict(type='PRepBN'))
    randomize(model)
    model.eval()
    folded = fold_norms(model)
    assert not any(isinstance(module, PRepBN) for module in folded.modules())
    assert any(isinstance(module, PRepBN) for module in model.modules())
    for size in ((32, 32), (37, 50)):
        x = torch.randn(2, 3, *size)
        for got, want in zip(folded(x), model(x), strict=True):
            assert_near('output', got, want)
    kept = {name for name, m in folded.named_modules() if type(m).__name__ == 'ChannelAffine'}
    assert not any(name.endswith('norm2') for name in kept)  # before the MLP
    if name == 'ViT':
        assert kept == {'norm'}


@pytest.mark.parametrize('name', BACKBONES)
def test_published_weights_give_the_published_outputs(name, tmp_path):
    published = BACKBONES[name](dict(type='PublishedPRepBN'))
    randomize(published)
    published.train()
    published(torch.randn(2, 3, 32, 32))
    torch.save(from_published_slab(AUTHORS[name](published)), tmp_path / 'slab.pth')
    model = BACKBONES[name](dict(type='PRepBN'))
    model.init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'slab.pth'))
    model.init_weights()
    assert {int(m.step) for m in model.modules() if isinstance(m, PRepBN)} == {1}
    x = torch.randn(2, 3, 32, 32)
    for train in (True, False):
        published.train(train)
        model.train(train)
        for got, want in zip(model(x), published(x), strict=True):
            assert_near('output', got, want)
    for got, want in zip(fold_norms(model)(x), published(x), strict=True):
        assert_near('folded', got, want)


def test_weights_without_layer_norm_load_as_completely_mixed(tmp_path):
    """SLAB's DeiT-T has RepBN only."""
    model = BACKBONES['ViT'](dict(type='PRepBN'))
    randomize(model)
    file = {}
    for key, value in model.state_dict().items():
        is_layer_norm = 'norm' in key and 'batch_norm' not in key and not key.endswith('alpha')
        if not is_layer_norm:
            file[key.replace('batch_norm.bn.', 'bn.')] = value
    torch.save(from_published_slab(file), tmp_path / 'repbn.pth')
    loaded = BACKBONES['ViT'](dict(type='PRepBN', steps=1000))
    loaded.init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'repbn.pth'))
    loaded.init_weights()
    x = torch.randn(2, 3, 32, 32)
    assert_near('output', loaded.eval()(x)[0], model.eval()(x)[0])
    assert loaded.norm.step == 300_000
