"""Stochastic depth: whole samples, the right expectation, and the same draws in every precision."""

import torch

from tokennorm.layers.block import DropPath

SAMPLES = 100_000


def test_it_drops_whole_samples_and_scales_the_others():
    x = torch.ones(SAMPLES, 2, 3)
    kept = DropPath(0.25)(x)
    assert torch.equal(kept, kept[:, :1, :1].expand_as(kept))
    assert set(kept[:, 0, 0].mul(3).round().unique().tolist()) == {0, 4}
    assert abs(kept.mean().item() - 1) < 0.01
    assert torch.equal(DropPath(0.25).eval()(x), x)
    assert torch.equal(DropPath(0.0)(x), x)


def test_the_probability_is_not_rounded_to_the_tokens_precision():
    """bfloat16 has no 0.9: 160 of 100,000 samples more would be dropped at 0.8984."""
    masks = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        torch.manual_seed(0)
        out = DropPath(0.1)(torch.ones(SAMPLES, 1, dtype=dtype))
        assert out.dtype == dtype
        masks.append(out > 0)
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])
