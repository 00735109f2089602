"""No tensor of a forward pass is made on another device than that of the inputs, without a GPU.

Fake tensors have shapes and devices only. What works with arrays of numpy gets real tensors of the CPU, where new ones
are on PyTorch's device `meta`, which has no values, unless the operator says where.
"""

import mmcv_cases
import numpy as np
import pytest
import torch
from conftest import operators
from mmcv_cases import boxes, random, rois, rotated_boxes
from mmcv_ops import ext
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode


def cases():
    """Inputs of operators without steps that depend on values, as the compiled module gets them."""
    r, quads, points = rotated_boxes(6), torch.zeros(6, 8), torch.zeros(6, 18)
    x, y = random(2, 8, 10, 12, grad=False), random(2, 8, 10, 12, grad=False)
    out, pairs = torch.zeros(6), torch.zeros(6, 6)
    return {
        'bbox_overlaps': (boxes(6), boxes(6), pairs, 0, False, 0),
        'box_iou_rotated': (r, r, out, 0, True),
        'box_iou_quadri': (quads, quads, out, 0, True),
        'points_in_polygons_forward': (boxes(6)[:, :2], quads, pairs),
        'min_area_polygons': (points, quads),
        'chamfer_distance_forward': (x[0], x[0], x[0, ..., 0], x[0, ..., 0], x[0, ..., 0].int(), x[0, ..., 0].int()),
        'diff_iou_rotated_sort_vertices_forward': (
            torch.zeros(1, 6, 24, 2), torch.zeros(1, 6, 24).bool(), torch.zeros(1, 6).int()
        ),
        'active_rotated_filter_forward': (
            torch.zeros(3, 2, 1, 3, 3), torch.ones(1, 3, 3, 4).int(), torch.zeros(12, 2, 3, 3)
        ),
        'rotated_feature_align_forward': (x, torch.zeros(2, 10, 12, 5), y, 0.1, 5),
        'border_align_forward': (
            x, torch.zeros(2, 6, 4), torch.zeros(2, 2, 6, 4), torch.zeros(2, 2, 6, 4).int(), 3
        ),
        'correlation_forward': (x, x, torch.zeros(2, 3, 3, 10, 12), 1, 1, 3, 3, 0, 0, 1, 1, 1, 1, 1, 1),
        'tin_shift_forward': (x, torch.zeros(2, 2).int(), y),
        'roi_align_forward': (x, rois(6), torch.zeros(6, 8, 2, 2), None, None, 2, 2, 0.1, 2, 1, True),
        'sigmoid_focal_loss_forward': (pairs, torch.zeros(6).long(), torch.zeros(6), pairs, 2.0, 0.25),
        'carafe_naive_forward': (x, torch.zeros(2, 9, 20, 24), torch.zeros(2, 8, 20, 24), 3, 1, 2),
        'psamask_forward': (
            random(2, 15, 4, 5, grad=False), torch.zeros(2, 20, 4, 5), 0, 2, 4, 5, 3, 5, 1, 2
        ),
    }  # fmt: skip


# Of each operator; the others differ in numbers and modes.
FIRST = list({name.split('-')[0]: name for name in reversed(mmcv_cases.CASES)}.values())


@pytest.mark.parametrize('name', cases())
def test_forward_stays_on_the_device(name):
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        inputs = [mode.from_tensor(a).to('cuda') if torch.is_tensor(a) else a for a in cases()[name]]
        getattr(ext, name)(*inputs)
        assert all(a.device.type == 'cuda' for a in inputs if torch.is_tensor(a))


def test_pairs_of_circles_stay_on_the_device():
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        r = mode.from_tensor(rotated_boxes(6)).to('cuda')
        with pytest.raises(DynamicOutputShapeException):  # the number of pairs: everything before it ran
            ext.box_iou_rotated(r, r, torch.zeros(36, device='cuda'), 0, False)


class _WithDefault:
    """The operators, where tensors without a device are made on this one."""

    def __init__(self, device):
        self.device = device

    def __getattr__(self, name):
        def call(*args, **kwargs):
            with torch.device(self.device):
                return getattr(ext, name)(*args, **kwargs)

        return call


@pytest.mark.parametrize(
    'name', [pytest.param(name, marks=() if name in FIRST else pytest.mark.slow) for name in mmcv_cases.CASES]
)
def test_no_default_device_is_used(name, ops):
    """As with `torch.set_default_device('cuda')`, and inputs on the CPU."""
    expected = mmcv_cases.run(name, ops)
    with operators(_WithDefault('meta')) as others:
        for key, value in mmcv_cases.run(name, others).items():
            np.testing.assert_array_equal(value, expected[key], f'{name} {key}')


@pytest.mark.parametrize('name', [name for name in FIRST if '_kinks' not in name])  # which makes tensors on the CPU
def test_cases_stay_on_the_device(name, monkeypatch):
    """Up to the first step whose shape depends on values, or that copies values to the CPU."""
    monkeypatch.setattr(mmcv_cases, 'random', lambda *shape, grad=True, **how: random(*shape, grad=False, **how).cuda())
    monkeypatch.setattr(mmcv_cases, 'gradients', lambda output, **_: dict(output=output))
    default, fake = torch.device('cuda'), FakeTensorMode(allow_non_fake_inputs=True)
    with operators(_WithDefault('cpu')) as ops, torch.no_grad(), fake, default:
        try:
            outputs = mmcv_cases.CASES[name](ops)
        except DynamicOutputShapeException:
            return
        except RuntimeError as error:
            if not str(error).startswith('.numpy() is not supported'):
                raise
            return
    assert {output.device.type for output in outputs.values()} == {'cuda'}
