"""Backbones with DTN under torch.compile: no graph breaks, and the eager numbers at sizes that were not traced."""

import pytest
import torch

from tests.helpers.compare import assert_near
from tokennorm.backbones import PVT
from tokennorm.ops.cpu import kernel

pytestmark = pytest.mark.slow
ARCH = dict(embed_dims=(16, 32), depths=(1, 1), num_heads=(1, 2), mlp_ratios=(2, 2), sr_ratios=(4, 2))
SIZES = [(64, 96), (96, 128)]


@pytest.fixture(autouse=True)
def without_the_kernel(monkeypatch):
    """The kernel would break the graph."""
    monkeypatch.setattr(kernel, 'library', lambda: None)


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
