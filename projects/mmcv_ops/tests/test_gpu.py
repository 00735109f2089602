"""On a GPU every case has the values and gradients of the CPU."""

import mmcv_cases
import numpy as np
import pytest
import torch

pytestmark = pytest.mark.gpu
TOLERANCE = 1e-4  # of the largest entry: other orders of sums


@pytest.mark.parametrize('name', mmcv_cases.CASES)
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
