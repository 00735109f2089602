"""Faults of other replacements of mmcv's operators, and inputs at which mmcv's own crash."""

import pytest
import torch
import torch.nn.functional as F
from mmcv_cases import boxes, random, rotated_boxes


def test_batched_nms_uses_the_threshold_for_every_class(ops):
    """Two boxes per class with an IoU of 0.6: a threshold of 0.7 keeps both, one of 0.5 keeps one."""
    pair = torch.tensor([[0, 0, 10, 10], [0, 0, 10, 6.0]])
    b, labels = pair.repeat(3, 1), torch.arange(3).repeat_interleave(2)
    scores = torch.linspace(0.9, 0.4, 6)
    for split in (1, 10000):
        kept = {
            t: ops.batched_nms(b, scores, labels, dict(iou_threshold=t, split_thr=split))[1].tolist()
            for t in (0.7, 0.5)
        }
        assert kept == {0.7: [0, 1, 2, 3, 4, 5], 0.5: [0, 2, 4]}


def test_iou_equal_to_the_threshold_is_kept(ops):
    """mmcv rounds the threshold to float32: 0.3 is then above, and not below, an IoU of 3 / 10."""
    for height, threshold in ((3.0, 0.3), (5.0, 0.5), (7.0, 0.7)):
        b = torch.tensor([[0, 0, 10, 10], [0, 0, 10, height]])
        assert ops.nms(b, torch.tensor([0.9, 0.8]), threshold)[1].tolist() == [0, 1]


def test_soft_nms_rescores(ops):
    b = torch.tensor([[0, 0, 10, 10], [0, 0, 10, 6.0]])
    cfg = dict(type='soft_nms', iou_threshold=0.3, min_score=0.01)
    dets, kept = ops.batched_nms(b, torch.tensor([0.9, 0.8]), torch.zeros(2), cfg)
    assert kept.tolist() == [0, 1]
    torch.testing.assert_close(dets[:, 4], torch.tensor([0.9, 0.8 * 0.4]))  # linear: 1 - IoU


def test_deform_conv_is_not_a_plain_convolution(ops):
    x, weight = random(1, 2, 6, 7, grad=False), random(3, 2, 3, 3, seed=1, grad=False)
    plain = F.conv2d(x, weight, padding=1)
    zero = torch.zeros(1, 18, 6, 7)
    torch.testing.assert_close(ops.deform_conv2d(x, zero, weight, 1, 1), plain)
    moved = zero.clone()
    moved[:, 1::2] = 1  # all taps one pixel to the right
    expected = F.conv2d(F.pad(x, (0, 2, 1, 1)), weight)
    torch.testing.assert_close(ops.deform_conv2d(x, moved, weight, 1, 1)[..., :-1], expected[..., :-1])
    assert not torch.allclose(expected, plain)


def test_roi_align_half_pixel(ops):
    """`aligned` moves by half a feature pixel, after the scale: a ramp's mean is the center of the RoI minus 0.5."""
    ramp = torch.arange(40.0).repeat(1, 1, 40, 1)
    for scale, box in ((0.25, (20, 20, 60, 60.0)), (0.5, (20, 20, 60, 60.0)), (1.0, (10, 10, 10.5, 10.5))):
        region = torch.tensor([[0, *box]])
        center = (box[0] + box[2]) / 2 * scale
        assert ops.roi_align(ramp, region, 1, scale, 0, 'avg', True).item() == pytest.approx(center - 0.5, abs=1e-4)
    # Without `aligned` there is no shift, and RoIs are at least one pixel wide.
    assert ops.roi_align(ramp, region, 1, 1.0, 0, 'avg', False).item() == pytest.approx(10.5, abs=1e-4)


def test_roi_align_samples_in_the_border_pixel(ops):
    """Samples up to one pixel outside take the border's value."""
    x = torch.full((1, 1, 4, 4), 3.0)
    assert ops.roi_align(x, torch.tensor([[0, -0.9, -0.9, 0, 0]]), 1, 1.0, 2, 'avg', False).item() == 3


@pytest.mark.parametrize('mode', ['avg', 'max'])
@pytest.mark.parametrize('box', [[0, 4, 4, 1, 1.0], [0, 1, 1, float('nan'), 4], [2, 0, 0, 4, 4.0], [-1, 0, 0, 4, 4.0]])
def test_invalid_regions_raise(ops, mode, box):
    """mmcv asserts the size and reads outside its memory for the others."""
    with pytest.raises(RuntimeError, match='RoIs need'):
        ops.roi_align(random(2, 3, 8, 9), torch.tensor([box]), 2, 1.0, 0, mode, True)


def test_empty_inputs(ops):
    x = random(2, 3, 8, 9)
    for mode in ('avg', 'max'):
        output = ops.roi_align(x, torch.zeros(0, 5), 2, 1.0, 0, mode, True)
        assert output.shape == (0, 3, 2, 2)
        assert not torch.autograd.grad(output.sum(), x)[0].any()
    assert ops.RoIPool(2, 1.0)(x, torch.zeros(0, 5)).shape == (0, 3, 2, 2)
    assert ops.roi_align_rotated(x, torch.zeros(0, 6), 2, 1.0).shape == (0, 3, 2, 2)
    assert ops.box_iou_rotated(torch.zeros(0, 5), torch.ones(3, 5)).shape == (0, 3)
    for function in (ops.nms, ops.soft_nms):
        dets, kept = function(torch.zeros(0, 4), torch.zeros(0), 0.5)
        assert dets.shape == (0, 5)
        assert kept.shape == (0,)


def test_rois_with_gradients(ops):
    """mmcv has no gradient of the coordinates."""
    x, region = random(1, 2, 8, 9), torch.tensor([[0, 1, 1, 6, 6.0]], requires_grad=True)
    ops.roi_align(x, region, 2).sum().backward()
    assert region.grad is None
    assert x.grad.sum().item() == pytest.approx(8, abs=1e-4)


def test_rotated_boxes_with_common_sides(ops):
    """Collinear sides count once: at the same angle, and side by side. IoUs by hand."""
    first = [[0, 0, 4, 2, 0.3], [0, 0, 4, 2, 0], [5, 5, 4, 4, 0], [0, 0, 2, 2, 0], [0, 0, 4, 2, 0.7], [9, 9, 6, 2, 0.5]]
    second = [
        [0, 0, 8, 2, 0.3],
        [4, 0, 4, 2, 0],
        [5, 5, 4, 4, torch.pi / 2],
        [0, 1, 2, 2, 0],
        [0, 0, 2, 1, 0.7],
        [9, 9, 2, 6, 0.5],
    ]
    ious = ops.box_iou_rotated(torch.tensor(first), torch.tensor(second), aligned=True)
    torch.testing.assert_close(ious, torch.tensor([0.5, 0, 1, 1 / 3, 0.25, 0.2]), rtol=0, atol=1e-6)
    same = rotated_boxes(30)
    torch.testing.assert_close(ops.box_iou_rotated(same, same, aligned=True), torch.ones(30), rtol=0, atol=1e-6)


def test_nms_of_infinite_boxes_and_scores(ops, compiled):
    b, scores = boxes(30), random(30, seed=3, grad=False)
    for value in (float('inf'), -float('inf'), float('nan')):
        bad_boxes, bad_scores = b.clone(), scores.clone()
        bad_boxes[4, 2], bad_scores[7] = value, value
        results = []
        for module in (ops, None):
            if module:
                results.append((module.nms(bad_boxes, bad_scores, 0.5)[1], module.soft_nms(bad_boxes, bad_scores)[1]))
                continue
            with compiled() as module:
                results.append((module.nms(bad_boxes, bad_scores, 0.5)[1], module.soft_nms(bad_boxes, bad_scores)[1]))
        for a, c in zip(*results, strict=True):
            assert a.tolist() == c.tolist()
