"""Operators that mmcv compiles for accelerators only: values and gradients against loops and other libraries."""

import mmcv_reference as reference
import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from mmcv_cases import random, rois
from mmcv_ops import ext


def assert_close(value, expected, tolerance=2e-6):
    value, expected = (np.asarray(a.detach() if torch.is_tensor(a) else a, np.float64) for a in (value, expected))
    np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()))


@pytest.mark.parametrize('mode', ['avg', 'max'])
@pytest.mark.parametrize('aligned', [False, True])
def test_roi_align_against_loops(ops, mode, aligned):
    x, regions = random(2, 2, 9, 7, grad=False), rois(8)
    for ratio in (0, 3):
        output = ops.roi_align(x, regions, (2, 3), 0.09, ratio, mode, aligned)
        assert_close(output, reference.roi_align(x.numpy(), regions.numpy(), (2, 3), 0.09, ratio, mode, aligned), 1e-5)


@pytest.mark.parametrize(('size', 'ratio'), [((3, 2), 0), ((3, 2), 2), ((2, 3), 5), ((1, 1), 0)])
@pytest.mark.parametrize('aligned', [False, True])
def test_roi_align_gradient_of_many_channels(ops, size, ratio, aligned):
    x, regions = random(2, 40, 9, 7), rois(20)
    grad = random(20, 40, *size, seed=5, grad=False)
    found = torch.autograd.grad(ops.roi_align(x, regions, size, 0.11, ratio, 'avg', aligned), x, grad)[0]
    args = 0.11, *size, *x.shape, ratio, aligned
    wanted = torch.ops.torchvision._roi_align_backward(grad.double(), regions.double(), *args)
    assert wanted.abs().max() > 0.1
    assert_close(found, wanted, 1e-5)


def test_deform_roi_pool(ops):
    x, regions = random(2, 2, 9, 7).double(), rois(3).double()
    offset = (random(3, 2, 2, 3, seed=4) * 4 - 2).double()
    for ratio in (0, 2):
        output = ops.deform_roi_pool(x, regions, offset, (2, 3), 0.09, ratio, 0.3)
        arrays = x.detach().numpy(), regions.numpy(), offset.detach().numpy()
        assert_close(output, reference.deform_roi_pool(*arrays, (2, 3), 0.09, ratio, 0.3))
        assert torch.autograd.gradcheck(
            lambda x, offset, ratio=ratio: ops.deform_roi_pool(x, regions, offset, (2, 3), 0.09, ratio, 0.3),
            (x.detach()[:, :1].requires_grad_(), offset.detach().requires_grad_()),
        )
    plain = ops.deform_roi_pool(x, regions, None, (2, 3), 0.09, 2)
    assert_close(plain, ops.roi_align(x, regions, (2, 3), 0.09, 2))
    plain.sum().backward()


def test_deform_roi_pool_without_samples(ops):
    """No RoIs, or RoIs of size 0 with one sample per feature pixel."""
    for regions in (torch.zeros(0, 5), torch.tensor([[0, 3.0, 3, 3, 3]])):
        inputs = random(2, 2, 9, 7), random(len(regions), 2, 2, 3, seed=4)
        output = ops.deform_roi_pool(inputs[0], regions, inputs[1], (2, 3), 1.0, 0, 0.3)
        assert not any(grad.any() for grad in torch.autograd.grad(output.sum(), inputs, materialize_grads=True))


def test_roi_pool(ops):
    x = random(2, 2, 9, 7)
    regions = torch.cat([rois(9), torch.tensor([[1, 30, 30, 20, 20.0], [0, 300, 300, 400, 400]])])
    output = ops.roi_pool(x, regions, (2, 3), 0.09)
    expected, where = reference.roi_pool(x.detach().numpy(), regions.numpy(), (2, 3), 0.09)
    assert_close(output, expected)
    weights = torch.linspace(-1, 1, output.numel()).view_as(output)
    (output * weights).sum().backward()
    grad = np.zeros((2, 2, 63))
    for k, c, i, j in np.ndindex(where.shape):
        if where[k, c, i, j] >= 0:
            grad[int(regions[k, 0]), c, where[k, c, i, j]] += weights[k, c, i, j]
    assert_close(x.grad, grad.reshape(x.shape))
    assert np.abs(output.detach().numpy()[-2:]).max() == 0  # negative size, outside
    assert not ops.roi_pool(x, regions[-2:-1], (2, 3), 0.09).any()  # negative sizes only


def test_roi_pool_on_pixel_borders_of_equal_values(ops):
    """Bins that end on pixels, empty bins, and several highest values: the first one has the gradient."""
    order = np.random.RandomState(0)
    for _ in range(20):
        x = torch.from_numpy(order.randint(0, 3, (2, 2, 5, 6))).float().requires_grad_()
        regions = np.concatenate([order.randint(0, 2, (6, 1)), order.randint(-6, 16, (6, 4)) / 2], 1)
        output = ops.roi_pool(x, torch.from_numpy(regions).float(), (2, 3), 1.0)
        expected, where = reference.roi_pool(x.detach().numpy(), regions, (2, 3), 1.0)
        assert_close(output, expected)
        grad = np.zeros((2, 2, 30))
        for k, c, i, j in np.argwhere(where >= 0):
            grad[int(regions[k, 0]), c, where[k, c, i, j]] += 1
        assert_close(torch.autograd.grad(output.sum(), x)[0], grad.reshape(x.shape))


@pytest.mark.parametrize('function', ['carafe', 'carafe_naive'])
def test_carafe(ops, function):
    x, masks = random(2, 4, 3, 5), random(2, 18, 6, 10, seed=1)
    output = getattr(ops, function)(x, masks, 3, 2, 2)
    assert_close(output, reference.carafe(x.detach().numpy(), masks.detach().numpy(), 3, 2, 2))


def test_carafe_gradients(ops):
    """The operator is linear in each input: its gradient is the loops' difference quotient, exactly."""
    x, masks = random(1, 2, 2, 3), random(1, 18, 4, 6, seed=1)
    weights = torch.linspace(-1, 1, 48).view(1, 2, 4, 6)
    (ops.carafe(x, masks.to(memory_format=torch.channels_last), 3, 2, 2) * weights).sum().backward()
    for leaf, place in ((x, 0), (masks, 1)):
        expected = np.zeros(leaf.shape)
        for index in np.ndindex(leaf.shape):
            inputs = [x.detach().numpy().astype(float), masks.detach().numpy().astype(float)]
            inputs[place] = np.zeros(leaf.shape)
            inputs[place][index] = 1
            expected[index] = (reference.carafe(*inputs, 3, 2, 2) * weights.numpy()).sum()
        assert_close(leaf.grad, expected)


def test_carafe_naive_gradients_equal_carafe():
    grad, x, masks = (
        random(*shape, seed=i, grad=False) for i, shape in enumerate([(1, 2, 4, 6), (1, 2, 2, 3), (1, 18, 4, 6)])
    )
    results = []
    for name, buffers in (('carafe_naive_backward', []), ('carafe_backward', [torch.empty(0)] * 4)):
        outputs = [torch.zeros_like(x), torch.zeros_like(masks)]
        getattr(ext, name)(grad, x, masks, *buffers, *outputs, kernel_size=3, group_size=2, scale_factor=2)
        results.append(outputs)
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
        assert a.abs().sum() > 0


@pytest.mark.parametrize(('kernel', 'padding'), [(3, 1), (1, 0), (5, 2)])
def test_masked_conv(ops, kernel, padding):
    conv = ops.MaskedConv2d(3, 4, kernel, padding=padding)
    x, mask = random(1, 3, 6, 7, grad=False), (random(1, 6, 7, seed=1, grad=False) > 0.5).float()
    assert_close(conv(x, mask), F.conv2d(x, conv.weight, conv.bias, padding=padding) * mask)
    assert not conv(x, torch.zeros_like(mask)).any()


@pytest.mark.parametrize('gamma', [2.0, 1.5])
@pytest.mark.parametrize('weighted', [False, True])
def test_sigmoid_focal_loss(ops, gamma, weighted):
    """Label 3 is the background. mmcv's kernel reads its class weight behind the tensor; here it is 1."""
    logits = (random(6, 3, grad=False) * 8 - 4).requires_grad_()
    target = torch.tensor([0, 1, 2, 3, 3, 0])
    weight = torch.tensor([0.5, 2, 3]) if weighted else None
    onehot = F.one_hot(target, 4)[:, :3]
    rows = torch.tensor([0.5, 2, 3, 1])[target][:, None] if weighted else torch.ones(6, 1)
    p, label = logits.sigmoid(), onehot.float()
    apart = (1 - p) * label + p * (1 - label)  # Lin et al. 2017, equation 5
    entropy = F.binary_cross_entropy_with_logits(logits, label, reduction='none')
    expected = (0.3 * label + 0.7 * (1 - label)) * apart**gamma * entropy * rows
    loss = ops.sigmoid_focal_loss(logits, target, gamma, 0.3, weight, 'none')
    assert_close(loss, expected)
    scale = torch.linspace(1, 2, 18).view(6, 3)
    (grad,) = torch.autograd.grad((loss * scale).sum(), logits)
    assert_close(grad, torch.autograd.grad((expected * scale).sum(), logits)[0], 1e-5)


def test_focal_loss_saves_its_inputs_only(ops):
    logits, target = random(50, 80), torch.arange(50)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        ops.sigmoid_focal_loss(logits, target, 2.0, 0.25, None, 'sum')
    assert sum(t.numel() * t.element_size() for t in saved) == 50 * 80 * 4 + 50 * 8


def test_focal_loss_of_large_logits_is_finite(ops):
    logits = torch.tensor([[200.0, -200, 0]] * 2, requires_grad=True)
    loss = ops.sigmoid_focal_loss(logits, torch.tensor([1, 0]), 2.0, 0.25, None, 'sum')
    (grad,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite()
    assert grad.isfinite().all()


def test_softmax_focal_loss(ops):
    logits = (random(6, 3, grad=False) * 6 - 3).requires_grad_()
    target, weight = torch.tensor([0, 1, 2, 2, 1, 0]), torch.tensor([0.5, 2, 3])
    p = logits.softmax(1)[torch.arange(6), target]
    expected = -0.3 * (1 - p) ** 2 * p.log() * weight[target]
    loss = ops.softmax_focal_loss(logits, target, 2.0, 0.3, weight, 'none')
    assert_close(loss, expected)
    loss = ops.softmax_focal_loss(logits, target, 2.0, 0.3, weight, 'sum')  # mmcv cannot differentiate 'none'
    (grad,) = torch.autograd.grad(loss, logits)
    assert_close(grad, torch.autograd.grad(expected.sum(), logits)[0], 1e-5)


@pytest.mark.parametrize('gamma', [0, 0.5, 1.0])
def test_gradient_of_a_certain_softmax_is_zero(ops, gamma):
    """A probability that rounds to 1: mmcv multiplies 0 and infinity."""
    logits = torch.tensor([[200.0, 0, 0]], requires_grad=True)
    ops.softmax_focal_loss(logits, torch.tensor([0]), gamma, 0.3, None, 'sum').backward()
    assert not logits.grad.any()


def test_softmax_focal_loss_ignores_labels_outside(ops):
    logits = random(3, 3)
    loss = ops.softmax_focal_loss(logits, torch.tensor([-1, 3, 1]), 2.0, 0.25, None, 'none')
    assert loss[:2].tolist() == [0, 0]
    assert loss[2] > 0


def test_line_nms(ops):
    if not hasattr(ops, 'line_nms'):
        pytest.skip('mmcv-lite has no line NMS')
    lanes, scores = random(40, 77, grad=False), random(40, seed=1, grad=False)
    lanes[:, 2], lanes[:, 4] = lanes[:, 2] * 0.9, lanes[:, 4] * 80 - 3  # starts, lengths from -3 to 77
    lanes[:, 5:] = lanes[:, 5:6] * 100 + lanes[:, 5:]
    for top_k in (4, 100):
        keep, count, parents = ops.line_nms(lanes, scores, 12.0, top_k)
        kept, expected = reference.line_nms(lanes.numpy().astype(float), scores.numpy(), 12.0, top_k)
        assert keep[:count].tolist() == kept
        assert not keep[count:].any()
        assert parents.tolist() == expected.tolist()
        assert len(kept) < 40


def test_deformable_attention(ops):
    shapes = [(4, 5), (2, 3)]
    value = random(2, 26, 2, 4)
    locations = (random(2, 3, 2, 2, 2, 2, seed=1, grad=False) * 1.2 - 0.1).requires_grad_()
    weights = random(2, 3, 2, 2, 2, seed=2)
    function = ops.multi_scale_deform_attn.MultiScaleDeformableAttnFunction.apply
    arguments = torch.tensor(shapes), torch.tensor([0, 20])
    output = function(value, *arguments, locations, weights, 64)
    arrays = [t.detach().double().numpy() for t in (value, locations, weights)]
    assert_close(output, reference.deformable_attention(arrays[0], shapes, *arrays[1:]))
    leaves = [t.detach().double().requires_grad_() for t in (value, locations, weights)]
    torch.autograd.gradcheck(lambda v, p, w: function(v, *arguments, p, w, 64), leaves, nondet_tol=0)


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group('gloo', init_method=f'file://{tmp_path}/group', rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_sync_batch_norm(ops, process_group):
    """With one process it is batch norm."""
    norm, expected_norm = ops.SyncBatchNorm(3, momentum=0.2), torch.nn.BatchNorm2d(3, momentum=0.2)
    expected_norm.load_state_dict(norm.state_dict())
    x = random(4, 3, 2, 5, scale=3)
    scale = torch.linspace(-1, 2, x.numel()).view_as(x)
    results = []
    for module in (norm, expected_norm):
        output = module(x)
        grads = torch.autograd.grad((output * scale).sum(), [x, module.weight, module.bias])
        results.append([output, *grads, module.running_mean, module.running_var])
    for a, b in zip(*results, strict=True):
        assert_close(a, b, 1e-5)
    assert_close(norm.eval()(x), expected_norm.eval()(x))
