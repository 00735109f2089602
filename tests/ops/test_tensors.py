"""The precision that normalizers compute in, and whether they compute again."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tokennorm.ops.tensors import in_float32, is_recomputed


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize('autocast', [False, True])
def test_half_precision_computes_in_float32_without_autocast(dtype, autocast):
    seen = []

    def double(x, factor):
        seen.append((x.dtype, torch.is_autocast_enabled('cpu')))
        return factor * x

    with torch.autocast('cpu', enabled=autocast):
        out = in_float32(double, torch.ones(3, dtype=dtype), 2)
    assert seen == [(torch.float64 if dtype == torch.float64 else torch.float32, False)]
    assert (out.dtype, out.tolist()) == (dtype, [2, 2, 2])
    assert in_float32(double, torch.ones(3, dtype=dtype, device='meta'), 2).dtype == dtype


@pytest.mark.parametrize('use_reentrant', [False, True])
def test_a_pass_that_checkpointing_repeats_is_known(use_reentrant):
    seen = []

    def layer(x):
        seen.append(is_recomputed())
        return x * x

    checkpoint(layer, torch.ones(1, requires_grad=True), use_reentrant=use_reentrant).sum().backward()
    assert seen == [False, True]
