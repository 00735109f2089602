"""Faults of other replacements of mmcv's operators, and inputs at which mmcv's own crash."""

import pytest
import torch
import torch.nn.functional as F
from mmcv_cases import boxes, gradients, random, rectangles, rois, rotated_boxes
from mmcv_ops import ext, nms, roi, sampling
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


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
@pytest.mark.parametrize(
    ('box', 'cause'),
    [
        ([0, 4, 4, 1, 1.0], 'negative size'),
        ([0, 1, 1, float('nan'), 4], 'NaN'),
        ([2, 0, 0, 4, 4.0], 'outside the batch of 2'),
        ([-1, 0, 0, 4, 4.0], 'outside the batch of 2'),
        ([0.5, 0, 0, 4, 4.0], 'fraction'),
    ],
)
def test_invalid_regions_raise(ops, mode, box, cause):
    """mmcv asserts the size, drops the fraction, and reads outside its memory for the others."""
    with pytest.raises(RuntimeError, match=f'RoIs need .*{cause}'):
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


def test_number_of_scores(ops):
    """mmcv's rotated NMS reads outside its memory, and four boxes with two scores would be two boxes."""
    scores = random(2, grad=False)
    for function, dets in ((ops.nms_rotated, rotated_boxes(4)), (ops.nms_quadri, rectangles(4))):
        with pytest.raises(ValueError, match='4 boxes and 2 scores'):
            function(dets, scores, 0.5)
    for call in (
        lambda: ext.nms(boxes(4), scores, 0.5, 0),
        lambda: ext.line_nms_forward(torch.zeros(4, 77), scores, 1, 4),
    ):
        with pytest.raises(ValueError, match='4 boxes and 2 scores'):
            call()


def test_pairs_of_equal_length(ops):
    for function, b in ((ops.box_iou_rotated, rotated_boxes(4)), (ops.box_iou_quadri, rectangles(4))):
        with pytest.raises(ValueError, match='4 and 2 rows'):
            function(b, b[:2], aligned=True)
    with pytest.raises(ValueError, match='polygons has the shape'):
        ops.convex_giou(random(4, 18, grad=False), rectangles(2))
    with pytest.raises(ValueError, match='input2 has the shape'):
        ops.Correlation()(random(2, 3, 4, 4), random(1, 3, 4, 4))
    with pytest.raises(ValueError, match='offset has the shape'):
        ops.deform_roi_pool(random(2, 3, 8, 9), rois(4), random(1, 2, 2, 2), (2, 2))


def test_regions_of_features_without_a_batch(ops):
    x = random(3, 8, 9, grad=False)
    message = r'features has the shape \(3, 8, 9\), expected \(any, any, any, any\)'
    for call in (
        lambda: ops.roi_align(x, rois(4), 2),
        lambda: ops.roi_align(x, rois(4), 2, 1.0, 0, 'max', True),
        lambda: ops.RoIPool(2, 1.0)(x, rois(4)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_chamfer_distance_of_empty_sets(ops):
    """No point is the nearest one of an empty set."""
    for first, second in ((0, 3), (3, 0)):
        shapes = rf'\(2, {first}, 2\) and \(2, {second}, 2\), expected at least one point in each'
        with pytest.raises(ValueError, match=shapes):
            ops.chamfer_distance(torch.zeros(2, first, 2), torch.zeros(2, second, 2))


def test_integer_boxes(ops):
    """An IoU in their dtype would be 0 or 1. mmcv raises, except in `bbox_overlaps`, which rounds."""
    b, scores = boxes(4).int(), random(4, grad=False)
    for call in (
        lambda: ops.nms(b, scores, 0.5),
        lambda: ops.soft_nms(b, scores),
        lambda: ops.nms_match(torch.cat([b, b[:, :1]], 1), 0.5),
        lambda: ops.box_iou_rotated(rotated_boxes(3).int(), rotated_boxes(3)),
        lambda: ops.nms_rotated(rotated_boxes(4).int(), scores, 0.5),
    ):
        with pytest.raises(ValueError, match='expected floating point'):
            call()
    assert ops.bbox_overlaps(b, b).dtype == torch.int32
    assert ops.bbox_overlaps(torch.zeros(1, 4), torch.zeros(1, 4)).isnan().all()


def test_nan_scores_come_first(ops):
    """As in mmcv, except that soft NMS takes a NaN only where it is the first one that is left."""
    nan = torch.tensor([0.9, 0.8, float('nan'), 0.6])
    b = torch.tensor([[0, 0, 10, 10], [0, 0, 10, 9.0], [20, 20, 30, 30], [20, 20, 30, 29]])
    assert ops.nms(b, nan, 0.5)[1].tolist() == [2, 0]
    assert [group.tolist() for group in ops.nms_match(torch.cat([b, nan[:, None]], 1), 0.5)] == [[2, 3], [0, 1]]
    rotated = torch.cat([(b[:, :2] + b[:, 2:]) / 2, b[:, 2:] - b[:, :2], torch.zeros(4, 1)], 1)
    labels = torch.tensor([0, 1, 0, 1])  # without influence, as in mmcv
    assert ops.nms_rotated(rotated, nan, 0.5, labels)[1].tolist() == [2, 0]
    assert ops.soft_nms(b, nan, 0.5)[1].tolist() == [0, 3, 2, 1]


@pytest.mark.parametrize('method', ['naive', 'linear', 'gaussian'])
@pytest.mark.parametrize('offset', [0, 1])
@pytest.mark.parametrize('size', [60, 400])
@pytest.mark.parametrize('threshold', [0, 0.3])
def test_soft_nms_has_one_result_in_all_forms(ops, monkeypatch, method, offset, size, threshold):
    """NMS, lists of pairs for boxes with few neighbors, rows of factors; equal scores, which leave these forms, too."""
    for levels in (0, 20):
        scores = random(150, seed=3, grad=False)
        scores = (scores * levels).round() / levels if levels else scores
        args = boxes(150, size), scores, threshold, 0.5, 0.05, method, offset
        results = [ops.soft_nms(*args)]
        for name, form in (('_pairs', lambda *_: None), ('_soft_without_ties', lambda *_: None)):
            monkeypatch.setattr(nms, name, form)
            results.append(ops.soft_nms(*args))
        monkeypatch.undo()
        for dets, kept in results[:-1]:
            assert kept.tolist() == results[-1][1].tolist()
            assert torch.equal(dets, results[-1][0])


@pytest.mark.parametrize('offset', [0, 1])
def test_soft_nms_with_a_threshold_of_zero(ops, offset):
    """An IoU of 0 is at the threshold: `naive` removes boxes that do not meet the best one, too."""
    apart = torch.tensor([[0, 0, 5, 5], [20, 20, 30, 30], [50, 50, 60, 60.0]])
    scores = torch.tensor([0.3, 0.9, 0.5])
    assert ops.soft_nms(apart, scores, 0, method='naive', min_score=0.05, offset=offset)[1].tolist() == [1]


@pytest.mark.parametrize('method', ['naive', 'linear', 'gaussian'])
def test_soft_nms_of_equal_scores_ends(ops, method):
    """Of boxes that do not overlap, mmcv takes the first one; then each that it moved there."""
    corner = 20 * torch.arange(200.0)[:, None].repeat(1, 2)
    dets, kept = ops.soft_nms(torch.cat([corner, corner + 10], 1), torch.full((200,), 0.5), method=method)
    assert kept.tolist() == list(range(200))
    assert (dets[:, 4] == 0.5).all()


def test_deformable_convolution_of_strided_inputs(ops):
    """mmcv's compiled form of version 2 reads their memory in the wrong order."""
    x, weight = random(1, 4, 7, 6), random(4, 4, 3, 3, seed=1)
    offset, mask = random(1, 18, 7, 6, seed=2), random(1, 9, 7, 6, seed=3)
    inputs = dict(x=x, offset=offset, mask=mask, weight=weight)
    expected = gradients(ops.modulated_deform_conv2d(*inputs.values(), None, 1, 1), **inputs)
    strided = {key: value.detach().transpose(2, 3).contiguous().transpose(2, 3) for key, value in inputs.items()}
    strided = {key: value.requires_grad_() for key, value in strided.items()}
    assert not strided['offset'].is_contiguous()
    for key, value in gradients(ops.modulated_deform_conv2d(*strided.values(), None, 1, 1), **strided).items():
        torch.testing.assert_close(value, expected[key], msg=key)


class _Largest(TorchDispatchMode):
    """The size of the largest tensor that an operation returned."""

    megabytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [t.untyped_storage().nbytes() / 1e6 for t in tree_leaves(out) if torch.is_tensor(t)]
        self.megabytes = max(self.megabytes, *sizes, 0)
        return out


@pytest.mark.parametrize('name', ['max', pytest.param('rotated', marks=pytest.mark.slow)])
def test_memory_of_a_huge_region(ops, name, monkeypatch):
    """A region of 700 x 700 pixels has half a million samples per channel: not all channels are sampled at once."""
    x, box = random(1, 24, 12, 12), torch.tensor([[0, -300, -290, 400, 410.0]])
    middle = torch.tensor([[0, 50, 60, 700, 700, 0.3]])
    align = dict(
        max=lambda: ops.roi_align(x, box, 7, 1.0, 0, 'max', True),
        rotated=lambda: ops.roi_align_rotated(x, middle, 7, 1.0, 0),
    )[name]
    expected = align()
    (gradient,) = torch.autograd.grad(expected.square().sum(), x)
    monkeypatch.setattr(roi, 'SAMPLES', 1 << 20), monkeypatch.setattr(sampling, 'SAMPLES', 1 << 20)
    with _Largest() as largest:
        output = align()
        (other,) = torch.autograd.grad(output.square().sum(), x)
    assert largest.megabytes < 24  # 4 neighbors of each sample of 2 channels; of all 24 channels it would be 188
    torch.testing.assert_close(output, expected, rtol=0, atol=0)
    torch.testing.assert_close(other, gradient)


def test_offsets_of_a_larger_map(ops):
    """DyHead: mmcv's kernels take the first values of each image. Equal to compiled, also in the gradients."""
    x, weight = random(2, 4, 6, 5), random(3, 4, 3, 3, seed=1)
    large = dict(offset=random(2, 36, 9, 11, seed=2), mask=random(2, 18, 9, 11, seed=3))
    small = {
        key: torch.stack([image.flatten()[: len(image) * 30].view(len(image), 6, 5) for image in t.detach()])
        for key, t in large.items()
    }
    results = []
    for tensors in (large, {key: t.requires_grad_() for key, t in small.items()}):
        output = ops.modulated_deform_conv2d(x, tensors['offset'], tensors['mask'], weight, None, 1, 1, 1, 1, 2)
        results.append((output, *torch.autograd.grad(output.square().sum(), [x, weight, *tensors.values()])))
    for value, expected in zip(results[0][:3], results[1][:3], strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
    for value, expected in zip(results[0][3:], results[1][3:], strict=True):
        first = expected[0].numel()
        assert torch.equal(value.flatten(1)[:, :first], expected.flatten(1))
        assert not value.flatten(1)[:, first:].any()
        assert expected.abs().sum() > 1
