"""Values and gradients against mmcv's compiled operators: stored ones, and live where this mmcv has them."""

import mmcv_cases
import numpy as np
import pytest

STORED = np.load(mmcv_cases.FILE)


def compare(name, result, expected):
    for key, value in result.items():
        want = expected[key]
        where = f'{name} {key}'
        if value.dtype.kind == 'i':
            np.testing.assert_array_equal(value, want, where)
        elif name.startswith(('nms', 'batched_nms', 'soft_nms', 'psa_mask')):
            np.testing.assert_allclose(value, want, rtol=1e-6, atol=0, err_msg=where)
        else:
            np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-5 * np.nanmax(np.abs(want)), err_msg=where)


@pytest.mark.parametrize('name', mmcv_cases.CASES)
def test_stored_values(name, ops):
    compare(
        name, mmcv_cases.run(name, ops), {k.partition('/')[2]: STORED[k] for k in STORED if k.startswith(name + '/')}
    )


@pytest.mark.parametrize('name', mmcv_cases.CASES)
def test_live_values(name, ops, compiled):
    result = mmcv_cases.run(name, ops)
    with compiled() as reference:
        compare(name, result, mmcv_cases.run(name, reference))
