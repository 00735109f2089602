"""Backbones with DTN under torch.compile: no graph breaks, and the eager numbers at sizes that were not traced."""

import copy

import pytest
import torch

from tests.helpers.compare import assert_near
from tests.helpers.weights import randomize
from tokennorm.backbones import PVT
from tokennorm.layers.building import build_norm

pytestmark = pytest.mark.slow
ARCH = dict(embed_dims=(16, 32), depths=(1, 1), num_heads=(1, 2), mlp_ratios=(2, 2), sr_ratios=(4, 2))
SIZES = [(64, 96), (96, 128)]


def backbone():
    return PVT(ARCH, token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed'), drop_path_rate=0.0)


def test_a_training_step_is_one_graph_for_all_sizes():
    """aot_eager: inductor of torch 2.11 stops at the gradient of dynamic sizes on a CPU, with LayerNorm too."""
    model = backbone()
    compiled = torch.compile(model, dynamic=True, fullgraph=True, backend='aot_eager')
    for size in SIZES:
        image = torch.randn(2, 3, *size)
        grads = []
        for net in (model, compiled):
            outs = net(image)
            grads.append(torch.autograd.grad(sum(out.square().sum() for out in outs), list(model.parameters())))
        for (name, _), actual, expected in zip(model.named_parameters(), *reversed(grads), strict=True):
            assert_near(f'{size} {name}', actual, expected, 'backward')


@torch.no_grad()
def test_inference_compiles_with_inductor():
    model = backbone().eval()
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    for size in SIZES:
        image = torch.randn(1, 3, *size)
        for i, (actual, expected) in enumerate(zip(compiled(image), model(image), strict=True)):
            assert_near(f'{size}, stage {i}', actual, expected)


COUNTING = [
    dict(type='PRepBN', steps=4),
    dict(type='TaperNorm', warmup=2, steps=5),
    dict(type='PowerNorm', warmup_iters=2),
]


@pytest.mark.parametrize('cfg', COUNTING, ids=lambda cfg: cfg['type'])
def test_gradients_of_norms_that_count_their_passes(cfg):
    """The partition of inductor computes the share again in the backward pass, when the pass is counted already."""
    eager = randomize(build_norm(cfg, 8)).train()
    norm = copy.deepcopy(eager)
    compiled = torch.compile(norm, backend='aot_eager_decomp_partition')
    for step in range(6):
        x, weights = torch.randn(2, 2, 3, 4, 8)
        (eager(x) * weights).sum().backward()
        (compiled(x) * weights).sum().backward()
        for (name, expected), actual in zip(eager.named_parameters(), norm.parameters(), strict=True):
            assert_near(f'pass {step} {name}', actual.grad, expected.grad, 'backward')
