"""Training on a CPU with other arithmetic for some modules: the same outputs, gradients, steps and names."""

import copy
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tokennorm.backbones import PVT
from tokennorm.backbones.base import Backbone
from tokennorm.backbones.timm_backbone import TimmBackbone
from tokennorm.engine.hooks import cpu_speed
from tokennorm.engine.hooks.cpu_speed import (
    CPUSpeedHook,
    _Depthwise,
    folded,
    has_slow_gradient,
)


def runner_of(model, optimizer=None):
    return SimpleNamespace(model=model, optim_wrapper=SimpleNamespace(optimizer=optimizer))


def randomized(model):
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.weight, 0.5, 2)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.normal_(norm.running_mean)
    return model


@pytest.fixture
def detector():
    pytest.importorskip('timm')
    torch.manual_seed(0)
    model = nn.Module()
    model.backbone = TimmBackbone('tf_efficientnet_lite0', out_indices=(2, 3, 4), frozen_stages=3, norm_eval=True)
    return randomized(model).train()


@pytest.mark.parametrize('settings', [((1, 1), (2, 2), (1, 1)), ((2, 1), (0, 3), (1, 2)), ((3, 2), (1, 0), (1, 1))])
@pytest.mark.parametrize(('batch', 'bias'), [(1, False), (3, True)])
def test_depthwise_gradients(settings, batch, bias):
    torch.manual_seed(0)
    shapes = (batch, 4, 11, 14), (4, 1, 5, 5), (4,)
    x, weight, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    b = b if bias else None
    out, wanted = _Depthwise.apply(x, weight, b, *settings), nn.functional.conv2d(x, weight, b, *settings, 4)
    assert torch.equal(out, wanted)
    inputs, grad = [t for t in (x, weight, b) if t is not None], torch.randn_like(out)
    found, expected = torch.autograd.grad(out, inputs, grad), torch.autograd.grad(wanted, inputs, grad)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_which_convolutions_are_depthwise():
    assert has_slow_gradient(nn.Conv2d(4, 4, 5, groups=4))
    others = [
        nn.Conv2d(4, 4, 5), nn.Conv2d(4, 8, 5, groups=4), nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(1, 1, 5),
        nn.Conv2d(4, 4, 5, groups=2), nn.Conv2d(4, 4, 5, groups=4, padding='same'),
        nn.ConvTranspose2d(4, 4, 5, groups=4),
        nn.Conv2d(4, 4, 5, groups=4, padding=2, padding_mode='reflect'),
        nn.Conv2d(4, 4, 5, groups=4).requires_grad_(False),
    ]  # fmt: skip
    assert not any(map(has_slow_gradient, others))


@pytest.mark.parametrize('bias', [False, True])
def test_folded_batch_norm(bias):
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 5, 3, stride=2, padding=1, bias=bias), nn.BatchNorm2d(5)
    randomized(nn.Sequential(conv, norm)).eval()
    before, x = copy.deepcopy(conv.state_dict()), torch.randn(2, 3, 9, 8)
    torch.testing.assert_close(folded(conv, norm)(x), norm(conv(x)), rtol=1e-5, atol=1e-6)
    assert all(torch.equal(value, before[key]) for key, value in conv.state_dict().items())


def test_outputs_gradients_and_names_are_the_same(detector):
    backbone, images = detector.backbone, torch.randn(2, 3, 96, 64)

    def run():
        outs = backbone(images)
        sum(((i + 1) * out.square()).mean() for i, out in enumerate(outs)).backward()
        grads = {name: p.grad.clone() for name, p in backbone.named_parameters() if p.grad is not None}
        backbone.zero_grad()
        return outs, grads

    outs, grads = run()
    state, modules = copy.deepcopy(detector.state_dict()), dict(detector.named_modules())
    hook = CPUSpeedHook()
    hook.before_train(runner_of(detector))
    replaced = [module for module in modules.values() if 'forward' in vars(module)]
    frozen = sum(isinstance(m, nn.BatchNorm2d) and not m.weight.requires_grad for m in replaced)
    large = sum(has_slow_gradient(module) for module in replaced)
    fast_outs, fast_grads = run()

    assert (frozen, large) == (15, 7)  # norms of the stem and of three stages; 5 x 5
    torch.testing.assert_close(fast_outs, outs, rtol=1e-4, atol=1e-5)
    assert fast_grads.keys() == grads.keys()
    for name, grad in grads.items():
        assert (fast_grads[name] - grad).norm() <= 2e-5 * grad.norm(), name
    assert all(out.is_contiguous(memory_format=torch.channels_last) for out in fast_outs)
    assert state.keys() == detector.state_dict().keys()
    assert all(torch.equal(value, state[key]) for key, value in detector.state_dict().items())
    assert dict(detector.named_modules()) == modules

    hook.after_train(runner_of(detector))
    assert not any('forward' in vars(module) for module in modules.values())
    assert all(torch.equal(a, b) for a, b in zip(run()[0], outs, strict=True))


def test_weights_loaded_after_training_are_used(detector):
    images = torch.randn(1, 3, 64, 64)
    hook = CPUSpeedHook()
    hook.before_train(runner_of(detector))
    hook.on_exit(runner_of(detector))
    other = randomized(copy.deepcopy(detector))
    detector.load_state_dict(other.state_dict())
    for found, wanted in zip(detector.backbone(images), other.backbone(images), strict=True):
        assert torch.equal(found, wanted)


def test_feature_maps_for_compiled_operators_are_contiguous(detector, monkeypatch):
    monkeypatch.setattr(cpu_speed, 'check_mmcv_ops', lambda: 'compiled in mmcv')
    CPUSpeedHook().before_train(runner_of(detector))
    assert all(out.is_contiguous() for out in detector.backbone(torch.randn(1, 3, 96, 64)))


@pytest.mark.parametrize('frozen', [False, True])
def test_group_norms_compute_as_before(detector, frozen):
    """With channels last PyTorch's loses digits here, and its backward pass crashes if the input has no gradient."""
    detector.neck = nn.GroupNorm(8, 320)
    feature = torch.randn(1, 320, 16, 16).to(memory_format=torch.channels_last) + 300
    hook = CPUSpeedHook()
    hook.before_train(runner_of(detector))
    out = detector.neck(feature.requires_grad_(not frozen))
    (grad,) = torch.autograd.grad(out.square().sum(), [detector.neck.weight])
    exact = copy.deepcopy(detector.neck).double()
    wanted = exact(feature.detach().double())
    torch.testing.assert_close(out.double(), wanted, rtol=1e-4, atol=1e-3)
    (wanted,) = torch.autograd.grad(wanted.square().sum(), [exact.weight])
    torch.testing.assert_close(grad.double(), wanted, rtol=1e-3, atol=1e-3)
    hook.on_exit(runner_of(detector))
    assert not detector.neck._forward_pre_hooks


def test_attention_backbone_has_the_same_outputs():
    torch.manual_seed(0)
    model, images = nn.Module(), torch.randn(1, 3, 64, 64)
    arch = dict(embed_dims=[8, 16], depths=[1, 1], num_heads=[1, 2], mlp_ratios=[2, 2], sr_ratios=[4, 2])
    model.backbone = PVT(arch)
    wanted = model.eval().backbone(images)
    CPUSpeedHook().before_train(runner_of(model))
    assert all(torch.equal(a, b) for a, b in zip(model.backbone(images), wanted, strict=True))


def test_third_party_backbone_stays():
    model = nn.Module()
    model.backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval().requires_grad_(False)
    CPUSpeedHook().before_train(runner_of(model))
    assert not any('forward' in vars(module) for module in model.modules())


class Frozen(Backbone):
    """A frozen convolution and batch norm, and what else can be done with them."""

    vector_type = 'featmap'
    layouts = ()

    def __init__(self, outputs, conv=nn.Conv2d):
        super().__init__(1)
        self.conv, self.other, self.outputs = conv(3, 4, 3), nn.Conv2d(3, 4, 3), outputs
        self.norm, self.second = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        randomized(self).requires_grad_(False)

    def _freeze_stages(self):
        for norm in (self.norm, self.second):
            norm.train(norm.training and norm.weight.requires_grad)

    def _outputs(self, x):
        return self.outputs(self, x)


class Doubled(Frozen):
    def forward(self, x):
        return tuple(2 * out for out in super().forward(x))


def standardized(*args):
    return pytest.importorskip('timm').layers.StdConv2d(*args)


@pytest.mark.parametrize(
    'make',
    [
        lambda: Frozen(lambda m, x: [m.norm(m.conv(x))]),
        lambda: Frozen(lambda m, x: [m.norm(m.conv(x)), m.second(m.conv(x))]),
        lambda: Frozen(lambda m, x: [m.norm(m.conv(x)), m.norm(m.other(x))]),
        lambda: Frozen(lambda m, x: [m.norm(y := m.conv(x)) + y]),
        lambda: Frozen(lambda m, x: [m.norm(m.conv(x))], standardized),
        lambda: Doubled(lambda m, x: [m.norm(m.conv(x))]),
    ],
    ids=['once', 'two norms', 'two convolutions', 'read twice', 'other arithmetic', 'own forward'],
)
def test_frozen_norms_of_unusual_backbones(make):
    torch.manual_seed(0)
    model, images = nn.Module(), torch.randn(2, 3, 20, 20)
    model.backbone = make()
    wanted, state = model.backbone(images), torch.random.get_rng_state()
    hook = CPUSpeedHook()
    hook.before_train(runner_of(model))
    assert torch.equal(torch.random.get_rng_state(), state), 'training stays reproducible'
    torch.testing.assert_close(model.backbone(images), wanted, rtol=1e-4, atol=1e-5)
    hook.on_exit(runner_of(model))
    assert all(torch.equal(a, b) for a, b in zip(model.backbone(images), wanted, strict=True))


def load(model):
    model.load_state_dict(randomized(copy.deepcopy(model)).state_dict())


def swap(model):
    for parameter in model.parameters():  # as mmengine's EMAHook
        parameter.data.copy_(torch.randn_like(parameter))


def unfreeze(model):
    model.requires_grad_(True).train()


def use_statistics_of_batches(model):
    model.norm.train()


@pytest.mark.parametrize(
    ('change', 'event'),
    [
        (load, 'before_train_iter'),
        (swap, 'before_val_epoch'),
        (unfreeze, 'before_train_iter'),
        (use_statistics_of_batches, 'before_train_iter'),
    ],
)
def test_frozen_norms_that_change_in_training(change, event):
    torch.manual_seed(0)
    model, images = nn.Module(), torch.randn(2, 3, 20, 20)
    model.backbone = Frozen(lambda m, x: [m.norm(m.conv(x))]).train()
    hook = CPUSpeedHook()
    hook.before_train(runner_of(model))
    assert 'forward' in vars(model.backbone.conv)
    change(model.backbone)
    getattr(hook, event)(runner_of(model))
    wanted = copy.deepcopy(model.backbone)
    hook_free = Frozen(wanted.outputs)
    hook_free.load_state_dict(wanted.state_dict())
    hook_free.norm.train(model.backbone.norm.training)
    torch.testing.assert_close(model.backbone(images)[0], hook_free._outputs(images)[0], rtol=1e-4, atol=1e-5)
    assert ('forward' in vars(model.backbone.conv)) == (change in (load, swap))


@pytest.mark.parametrize(('batch', 'autocast'), [(2, True), (0, False)])
def test_depthwise_convolution_under_autocast_and_of_an_empty_batch(batch, autocast):
    torch.manual_seed(0)
    conv, x = nn.Conv2d(4, 4, 5, padding=2, groups=4), torch.randn(batch, 4, 9, 8, requires_grad=True)
    found = []
    for forward in (conv, lambda x: cpu_speed.depthwise(conv, x)):
        with torch.autocast('cpu', torch.bfloat16, enabled=autocast):
            out = forward(x)
        found.append([out, *torch.autograd.grad(out.float().square().sum(), [x, conv.weight, conv.bias])])
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize('size', [(12, 13), (11, 14)])
@pytest.mark.parametrize('stride', [1, 2])
def test_depthwise_convolution_with_the_padding_of_tensorflow(size, stride):
    layers = pytest.importorskip('timm.layers')
    torch.manual_seed(0)
    conv = layers.Conv2dSame(4, 4, 5, stride=stride, groups=4)
    assert has_slow_gradient(conv)
    assert not has_slow_gradient(layers.Conv2dSame(4, 4, 3, groups=4))
    found = []
    for forward in (conv, lambda x: cpu_speed.depthwise(conv, x)):
        x = torch.randn(2, 4, *size, generator=torch.Generator().manual_seed(1), requires_grad=True)
        out = forward(x)
        found.append([out, *torch.autograd.grad(out.square().sum(), [x, conv.weight, conv.bias])])
    assert found[1][0].grad_fn.name() == '_DepthwiseBackward'
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


FAULTS = """
import resource
import torch
from tokennorm.engine.hooks.cpu_speed import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(12_000_000)  # 48 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = faults()
undo = keep_freed_memory()
faults()
kept = faults()
undo()
print(usual, kept, faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux' or platform.libc_ver()[0] != 'glibc', reason='glibc only')
def test_freed_memory_is_used_again_without_page_faults():
    output = subprocess.run([sys.executable, '-c', FAULTS], capture_output=True, text=True, check=True).stdout
    usual, kept, after = map(int, output.split())
    assert kept < 50 < min(usual, after)
