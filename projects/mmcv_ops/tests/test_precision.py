"""Half precision, float64 and memory formats: computed in float32 at least, and returned in the input's dtype."""

import pytest
import torch
from mmcv_cases import boxes, random, rois, rotated_boxes

HALF = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize('dtype', [*HALF, torch.float64])
def test_nms(ops, dtype):
    b, scores = boxes(50).to(dtype), random(50, seed=3, grad=False).to(dtype)
    assert ops.nms(b, scores, 0.5)[1].tolist() == ops.nms(b.float(), scores.float(), 0.5)[1].tolist()
    dets, kept = ops.soft_nms(b, scores, min_score=0.05)
    expected, expected_kept = ops.soft_nms(b.float(), scores.float(), min_score=0.05)
    assert torch.equal(dets, expected.to(dtype))
    assert torch.equal(kept, expected_kept)


@pytest.mark.parametrize('dtype', HALF)
@pytest.mark.parametrize('mode', ['avg', 'max'])
def test_roi_align_does_not_round_coordinates(ops, dtype, mode):
    """At 800 pixels bfloat16 has steps of 4: an RoI of that dtype would pool other pixels."""
    ramp = torch.linspace(0, 1, 200).repeat(1, 1, 4, 1).to(dtype).requires_grad_()
    regions = torch.tensor([[0, 701.0, 0, 707, 15]])
    output = ops.roi_align(ramp, regions, (1, 2), 0.25, 2, mode, True)
    assert output.dtype == dtype
    expected_input = ramp.detach().float().requires_grad_()
    expected = ops.roi_align(expected_input, regions, (1, 2), 0.25, 2, mode, True)
    assert torch.equal(output, expected.to(dtype))
    output.sum().backward()
    expected.sum().backward()
    assert torch.equal(ramp.grad, expected_input.grad.to(dtype))
    assert expected_input.grad.abs().sum() > 0


@pytest.mark.parametrize('mode', ['avg', 'max'])
def test_roi_align_memory_format(ops, mode):
    x, regions = random(2, 3, 10, 12, grad=False), rois(9)
    expected = ops.roi_align(x, regions, (3, 2), 0.11, 0, mode, True)
    for other in (x.to(memory_format=torch.channels_last), x.transpose(2, 3).contiguous().transpose(2, 3)):
        assert torch.equal(ops.roi_align(other, regions, (3, 2), 0.11, 0, mode, True), expected)


@pytest.mark.parametrize('dtype', HALF)
def test_autocast(ops, dtype):
    """Under autocast mmcv's functions get inputs of mixed dtypes."""
    torch.manual_seed(0)
    modules = ops.DeformConv2dPack(2, 2, 3, padding=1), ops.ModulatedDeformConv2dPack(2, 2, 3, padding=1)
    x = random(1, 2, 6, 6)
    for module in modules:
        expected = module(x)
        with torch.autocast('cpu', dtype=dtype):
            output = module(x)
            pooled = ops.roi_align(output, torch.tensor([[0, 1, 1, 5, 5.0]]), 2)
        torch.testing.assert_close(output.float(), expected, rtol=0, atol=0.02)
        (grad,) = torch.autograd.grad(pooled.float().sum(), module.weight)
        assert grad.dtype == torch.float32
        assert grad.abs().sum() > 0


@pytest.mark.parametrize('dtype', HALF)
def test_losses_and_upsampling(ops, dtype):
    logits, target = random(6, 3, grad=False).to(dtype), torch.tensor([0, 1, 2, 3, 3, 0])
    loss = ops.sigmoid_focal_loss(logits, target, 2.0, 0.25, None, 'none')
    assert torch.equal(loss, ops.sigmoid_focal_loss(logits.float(), target, 2.0, 0.25, None, 'none').to(dtype))
    x, masks = random(1, 2, 3, 4, grad=False).to(dtype), random(1, 9, 6, 8, grad=False).to(dtype)
    assert torch.equal(ops.carafe(x, masks, 3, 1, 2), ops.carafe(x.float(), masks.float(), 3, 1, 2).to(dtype))
    regions = torch.cat([torch.zeros(5, 1), rotated_boxes(5, 8)], 1)
    output = ops.roi_align_rotated(x, regions, 2, 0.5)
    assert torch.equal(output, ops.roi_align_rotated(x.float(), regions, 2, 0.5).to(dtype))


def test_float64_gradients(ops):
    x, offset = (
        random(1, 2, 4, 5).detach().double().requires_grad_(),
        random(1, 18, 4, 5, seed=1).detach().double() * 0.9,
    )
    weight, mask = random(2, 2, 3, 3).detach().double().requires_grad_(), random(1, 9, 4, 5).detach().double()
    for t in (offset, mask):
        t.requires_grad_()
    assert torch.autograd.gradcheck(lambda *a: ops.deform_conv2d(*a, 1, 1, 1), (x, offset, weight))
    assert torch.autograd.gradcheck(
        lambda *a: ops.modulated_deform_conv2d(*a, None, 1, 1, 1), (x, offset, mask, weight)
    )
    regions = torch.tensor([[0, 0.3, 0.2, 3.1, 2.9]]).double()
    for mode in ('avg', 'max'):
        assert torch.autograd.gradcheck(lambda x, mode=mode: ops.roi_align(x, regions, 2, 1.0, 2, mode, True), x)
