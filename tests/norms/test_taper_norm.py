"""TaperNorm against the paper's equations in float64: the gate, the factor c, padding, resuming and merging."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from experiments.prepbn.fold_norms import fold_norms
from tests.helpers.compare import assert_near, assert_same_with_gradients
from tokennorm.backbones import ViT
from tokennorm.norms import TaperNorm

WARMUP, STEPS = 3, 8


def build():
    norm = TaperNorm(6, eps=0.1, warmup=WARMUP, steps=STEPS).double()
    nn.init.normal_(norm.weight)
    return norm


def tapered(norm, x, k, c, gain):
    """The equations, for pass k."""
    cosine = (1 + math.cos(math.pi * (k - WARMUP) / (STEPS - WARMUP))) / 2
    gate = 1 if k <= WARMUP else 0 if k >= STEPS else cosine
    return gate * F.rms_norm(x, (6,), norm.weight, eps=0.1) + (1 - gate) * c * x @ torch.diag(gain)


def test_it_tapers_from_rms_norm_to_one_factor_per_channel():
    norm, seen = build(), []
    for k in range(STEPS + 2):
        x = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
        if k < WARMUP:
            r = (x.square().sum(-1) / 6 + 0.1).sqrt()
            length = (x * norm.weight).norm(dim=-1) ** 2
            seen.append(((length / r).mean().item(), length.mean().item()))
        num, den = (sum(0.99 ** (len(seen) - 1 - i) * pair[of] for i, pair in enumerate(seen)) for of in (0, 1))
        norm.train()
        got = norm(x)
        assert torch.equal(norm.weight, norm.scale) is (k <= WARMUP), k
        assert_same_with_gradients(
            got, tapered(norm, x, k, num / den, norm.scale), dict(x=x) | dict(norm.named_parameters())
        )
        with torch.no_grad():
            for p in norm.parameters():
                p += 0.1 * torch.randn(6)
        assert_near('eval', norm.eval()(x), tapered(norm, x, k + 1, num / den, norm.scale))  # the gate of the next pass
    assert norm.step == STEPS + 2
    scale, shift = norm.scale_and_shift()
    assert_near('merged', scale * x + shift, norm(x))


def test_c_brings_the_terms_closest_and_padding_does_not_count():
    norm = build()
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    valid = torch.tensor([[3, 4], [2, 2]])
    norm.train()(x, valid)
    tokens = torch.cat([x[0].flatten(0, 1), x[1, :2, :2].flatten(0, 1)])
    want, have = F.rms_norm(tokens, (6,), norm.weight, eps=0.1).flatten(), (tokens * norm.weight).flatten()
    best = torch.linalg.lstsq(have[:, None], want[:, None]).solution
    assert_near('c', norm.energy[0] / norm.energy[1], best.squeeze().detach())


def test_recomputed_and_repeated_passes():
    """Activation checkpointing does not count a pass twice; two passes before a backward one are two."""
    plain, recomputed = build(), build()
    recomputed.load_state_dict(plain.state_dict())
    for _ in range(STEPS):
        x = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
        want = plain(plain(x))
        got = checkpoint(recomputed, checkpoint(recomputed, x, use_reentrant=False), use_reentrant=False)
        assert_near('outputs', got, want)
        got.sum().backward()
        want.sum().backward()
    assert plain.step == recomputed.step == 2 * STEPS


def test_a_merged_backbone_gives_the_same_outputs():
    arch = dict(embed_dims=8, depth=2, num_heads=2, mlp_ratio=2)
    cfg = dict(type='TaperNorm', warmup=1, steps=2)
    model = ViT(arch, token_norm_cfg=cfg, pretrain_img_size=32, drop_path_rate=0.0)
    x = torch.randn(2, 3, 32, 32)
    model.train()(x)
    with pytest.raises(ValueError, match='TaperNorm: step=1 must reach steps=2 before it can be merged'):
        fold_norms(model)
    model(x)
    for module in model.modules():
        if isinstance(module, TaperNorm):
            nn.init.normal_(module.scale)
    folded = fold_norms(model)
    assert not any(isinstance(module, TaperNorm) for module in folded.modules())
    assert_near('output', folded(x)[0], model.eval()(x)[0])


def test_its_schedule_is_checked():
    with pytest.raises(ValueError, match='TaperNorm: warmup=5 must be an integer of at least 1, below steps=5'):
        TaperNorm(6, warmup=5, steps=5)
