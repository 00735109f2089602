"""The simple feature pyramid: the layers of the ViTDet paper, written out."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from mmengine.registry import MODELS
from torch import nn
from torch.export import Dim
from torch.fx.experimental import _config as symbolic_sizes

from tests.helpers.compare import assert_near
from tests.helpers.weights import randomize
from tokennorm.models.necks import SimpleFeaturePyramid


def norm(x, sequential, eps=1e-6):
    """LayerNorm over the channels of (B, C, H, W), with the parameters of a norm between two changes of layout."""
    mean = x.mean(1, keepdim=True)
    var = (x - mean).square().mean(1, keepdim=True)
    layer = sequential[1]
    return (x - mean) / (var + eps).sqrt() * layer.weight[:, None, None] + layer.bias[:, None, None]


def doubled(x, conv):
    """A transposed convolution of 2 x 2 at a stride of 2: each cell becomes 2 x 2 cells of its own."""
    cells = torch.einsum('bihw,iopq->bohpwq', x, conv.weight)
    return rearrange(cells, 'b o h p w q -> b o (h p) (w q)') + conv.bias[:, None, None]


def test_levels_are_those_of_the_paper():
    """Norms and a GELU between the deconvolutions, 1 x 1 and 3 x 3 convolutions without bias, each with its norm."""
    neck = randomize(SimpleFeaturePyramid(16, 12, num_outs=6)).double()
    x = torch.randn(2, 16, 6, 4, dtype=torch.float64)
    first, second, third, fourth = neck.levels
    starts = [
        (doubled(F.gelu(norm(doubled(x, first[0]), first[1])), first[3]), first[4:]),
        (doubled(x, second[0]), second[1:]),
        (x, third),
        (x.unflatten(2, (3, 2)).unflatten(4, (2, 2)).amax((3, 5)), fourth[1:]),
    ]
    expected = []
    for start, (one, one_norm, three, three_norm) in starts:
        inner = norm(torch.einsum('oi,bihw->bohw', one.weight[:, :, 0, 0], start), one_norm)
        windows = F.pad(inner, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
        expected.append(norm(torch.einsum('oipq,bihwpq->bohw', three.weight, windows), three_norm))
    expected += [expected[3][:, :, ::2, ::2], expected[3][:, :, ::2, ::2][:, :, ::2, ::2]]
    outs = neck((x,))
    assert [out.shape[2:] for out in outs] == [(24, 16), (12, 8), (6, 4), (3, 2), (2, 1), (1, 1)]
    for level, (actual, wanted) in enumerate(zip(outs, expected, strict=True)):
        assert_near(f'level {level}', actual, wanted, dtype=torch.float64)
    assert [first[0].out_channels, first[3].out_channels, second[0].out_channels] == [8, 4, 8]
    assert {layer.bias is None for layer in neck.modules() if type(layer) is nn.Conv2d} == {True}


@pytest.mark.parametrize(
    ('start_level', 'num_outs', 'sizes'),
    [
        (0, 4, [(20, 28), (10, 14), (5, 7), (3, 4)]),
        (1, 5, [(10, 14), (5, 7), (3, 4), (2, 2), (1, 1)]),
        (2, 1, [(5, 7)]),
        (3, 2, [(3, 4), (2, 2)]),
    ],
)
def test_levels_start_and_end_where_they_are_asked_to(start_level, num_outs, sizes):
    whole = SimpleFeaturePyramid(16, 12, num_outs=6)
    neck = SimpleFeaturePyramid(16, 12, num_outs, start_level)
    for level, source in zip(neck.levels, whole.levels[start_level:], strict=False):
        level.load_state_dict(source.state_dict())
    x = torch.randn(2, 16, 5, 7)
    outs = neck((x,))
    assert [tuple(out.shape) for out in outs] == [(2, 12, *size) for size in sizes]
    for out, expected in zip(outs, whole((x,))[start_level:], strict=False):
        assert torch.equal(out, expected)
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    assert [n for n, p in neck.named_parameters() if p.grad is None or not p.grad.abs().max() > 0] == []


def test_norms_are_those_of_norm_cfg():
    neck = MODELS.build(dict(type='tokennorm.SimpleFeaturePyramid', in_channels=16, norm_cfg=dict(type='LN', eps=1e-3)))
    norms = [module for module in neck.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 9
    assert {module.eps for module in norms} == {1e-3}
    assert {out.shape[1] for out in neck((torch.randn(1, 16, 2, 2),))} == {256}


@pytest.mark.parametrize('name', ['in_channels', 'out_channels', 'num_outs', 'start_level'])
def test_necks(name):
    for value in (-1, 'a', None, 0.5):
        with pytest.raises(ValueError, match=f'SimpleFeaturePyramid: {name}='):
            SimpleFeaturePyramid(**dict(in_channels=8, out_channels=8) | {name: value})


def test_an_export_takes_maps_of_one_position():
    """torch.export raises where such a side would take another way through the layers."""
    shapes = (({2: Dim('height', min=1, max=64), 3: Dim('width', min=1, max=64)},),)
    options = dict(dynamic_shapes=shapes, strict=False, prefer_deferred_runtime_asserts_over_guards=True)
    with symbolic_sizes.patch(backed_size_oblivious=True):  # as `tokennorm.export.writing` does
        program = torch.export.export(SimpleFeaturePyramid(8, 8), ((torch.randn(1, 8, 6, 10),),), **options)
    assert len(program.graph_signature.user_outputs) == 5
