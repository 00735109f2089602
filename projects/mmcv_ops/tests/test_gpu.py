"""On a GPU every case has the values and gradients of the CPU, and NMS the boxes that one order of ties gives."""

import mmcv_cases
import numpy as np
import pytest
import torch

TOLERANCE = 1e-4  # of the largest entry: other orders of sums
TIES = [f'nms-200-{threshold}-{offset}-1' for threshold in (0.3, 0.5) for offset in (0, 1)]


@pytest.mark.gpu
@pytest.mark.parametrize('name', [name for name in mmcv_cases.CASES if name not in TIES])
def test_values_of_the_cpu(ops, name, monkeypatch):
    expected = mmcv_cases.run(name, ops)
    random = mmcv_cases.random

    def random_on_gpu(*shape, grad=True, **others):
        return random(*shape, grad=False, **others).cuda().requires_grad_(grad)

    monkeypatch.setattr(mmcv_cases, 'random', random_on_gpu)
    monkeypatch.setattr(torch.backends.cudnn, 'allow_tf32', False)
    with torch.device('cuda'):
        actual = mmcv_cases.run(name, ops)
    for key, value in expected.items():
        if value.dtype.kind == 'i':
            np.testing.assert_array_equal(actual[key], value, key)
        else:
            scale = np.abs(value).max(initial=1)
            np.testing.assert_allclose(actual[key], value, rtol=0, atol=TOLERANCE * scale, err_msg=key)


@pytest.mark.parametrize('threshold', [0.3, 0.5])
@pytest.mark.parametrize('offset', [0, 1])
@pytest.mark.parametrize('device', ['cpu', pytest.param('cuda', marks=pytest.mark.gpu)])
def test_nms_with_some_order_of_ties(ops, threshold, offset, device):
    """PyTorch sorts equal scores in another order on a GPU. What was kept comes first among them, and is kept again."""
    boxes = mmcv_cases.boxes(200)
    scores = (mmcv_cases.random(200, seed=3, grad=False) * 10).round() / 10
    dets, kept = (part.cpu() for part in ops.nms(boxes.to(device), scores.to(device), threshold, offset=offset))
    np.testing.assert_array_equal(dets, torch.cat([boxes[kept], scores[kept, None]], 1))
    place = torch.full((200,), 200).scatter(0, kept, torch.arange(len(kept)))
    order = np.lexsort((place, -scores))
    again = ops.nms(boxes[order], torch.arange(200.0, 0, -1), threshold, offset=offset)[1]
    np.testing.assert_array_equal(order[again], kept)
