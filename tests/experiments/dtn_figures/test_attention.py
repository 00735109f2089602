"""Attention distances on grids that can be worked out by hand, and captured attention against the modules' results."""

import math

import pytest
import torch
import torch.nn.functional as F

from experiments.dtn_figures.attention import (
    attention_distance,
    attention_places,
    attention_weights,
    grid_places,
    places_inside,
    window_places,
)
from experiments.dtn_figures.probe import find_blocks, look
from tests.helpers.weights import redraw
from tokennorm.backbones import PVT, PVTv2, Swin, TimmBackbone, ViT
from tokennorm.backbones.pvt import SpatialReductionAttention
from tokennorm.backbones.pvt_v2 import LinearSpatialReductionAttention
from tokennorm.images.padding import note_image_sizes

NAN = math.nan
PYRAMID = dict(embed_dims=(16, 32), depths=(1, 2), num_heads=(1, 2), mlp_ratios=(2, 2))
PVT_ARCH = dict(PYRAMID, sr_ratios=(4, 1))
VIT_ARCH = dict(embed_dims=32, depth=3, num_heads=4, mlp_ratio=2)
DTN = dict(type='DTN')
BACKBONES = {
    'pvt': lambda: PVT(PVT_ARCH, token_norm_cfg=DTN),
    'pvt class token': lambda: PVT(PVT_ARCH, token_norm_cfg=DTN, token_norm_stages=1, out_type='cls_token'),
    'pvt v2': lambda: PVTv2(PVT_ARCH, token_norm_cfg=DTN),
    'pvt v2 linear': lambda: PVTv2(dict(PVT_ARCH, linear=True), token_norm_cfg=DTN),
    'swin': lambda: Swin(PYRAMID, window_size=3, token_norm_cfg=DTN),
    'vit': lambda: ViT(VIT_ARCH, patch_size=8, window_size=3, global_indices=[2], token_norm_cfg=DTN, l_dtn=2),
    'vit class token': lambda: ViT(VIT_ARCH, patch_size=8, token_norm_cfg=DTN, l_dtn=2, out_type='cls_token'),
}


def randomized(backbone):
    """Weights that make attention anything but uniform."""
    torch.manual_seed(0)
    return redraw(backbone, 0.3)


def test_attention_distance_of_identity_and_uniform_attention():
    """On 1 x 3 tokens: the ends see 0, 1 and 2 steps, the middle 1, 0 and 1. On 2 x 2: 0, 1, 1 and sqrt(2)."""
    row = grid_places(1, 3).view(1, 3, 2)
    assert attention_distance(torch.eye(3)[None, None], row, row).abs().max() == 0
    uniform = torch.full((1, 2, 3, 3), 1 / 3)
    torch.testing.assert_close(attention_distance(uniform, row, row)[0], torch.tensor([1, 2 / 3, 1]).expand(2, 3))
    square = grid_places(2, 2).view(1, 4, 2)
    distance = attention_distance(torch.full((1, 1, 4, 4), 0.25), square, square)
    torch.testing.assert_close(distance, torch.full((1, 1, 4), (2 + math.sqrt(2)) / 4))


def test_keys_without_a_place_are_left_out():
    """A class token that gets half of the weight: the other half counts whole."""
    places = torch.tensor([[[NAN, NAN], [0.5, 0.5], [0.5, 4.5]]])
    weights = torch.tensor([0.5, 0.375, 0.125]).expand(1, 1, 3, 3)
    distance = attention_distance(weights, places, places)[0, 0]
    assert distance[0].isnan()
    torch.testing.assert_close(distance[1:], torch.tensor([1.0, 3.0]))


def test_places_of_keys():
    reduced = SpatialReductionAttention(8, 1, sr_ratio=4, norm_cfg=dict(type='LN'))
    queries, keys = attention_places(reduced, (5, 11))
    assert queries[0].tolist() == [[y + 0.5, x + 0.5] for y in range(5) for x in range(11)]
    assert keys.tolist() == [[[2.0, 2.0], [2.0, 6.0]]]  # 5 x 11 tokens have 1 x 2 whole keys
    assert attention_places(reduced, (2, 8))[1].tolist() == [[[1.0, 2.0], [1.0, 6.0]]]
    averaged = LinearSpatialReductionAttention(8, 1, sr_ratio=1, norm_cfg=dict(type='LN'))
    _, keys = attention_places(averaged, (14, 7))
    torch.testing.assert_close(keys[0], torch.tensor([[2.0 * y + 1, x + 0.5] for y in range(7) for x in range(7)]))


def test_places_in_windows_are_padded_shifted_and_cut():
    """A 2 x 3 grid in windows of 2, shifted by 1 row and 1 column: row 1 comes first, column 0 last."""
    plain, shifted = window_places(2, 3, 2), window_places(2, 3, 2, shift=(1, 1))
    assert plain.shape == shifted.shape == (2, 4, 2)
    assert plain[0].tolist() == [[0.5, 0.5], [0.5, 1.5], [1.5, 0.5], [1.5, 1.5]]
    assert plain[1, ::2].tolist() == [[0.5, 2.5], [1.5, 2.5]]
    assert plain[1, 1::2].isnan().all()
    assert shifted[0].tolist() == [[1.5, 1.5], [1.5, 2.5], [0.5, 1.5], [0.5, 2.5]]
    assert shifted[1, 1].tolist() == [1.5, 0.5]
    cut = places_inside(plain, 1, 2)
    assert cut[0, :2].tolist() == plain[0, :2].tolist()
    assert cut[0, 2:].isnan().all()
    assert cut[1].isnan().all()


@pytest.mark.parametrize('name', BACKBONES)
def test_a_look_sees_what_the_blocks_compute(name):
    """The captured weights times values, projected, are the attention's output; the backbone's own is not changed."""
    backbone = randomized(BACKBONES[name]()).eval()
    images = torch.randn(1, 3, 80, 56)
    outputs = {}
    blocks = find_blocks(backbone)
    for block_name, block in blocks.items():
        block.attn.proj.register_forward_hook(lambda m, args, out, key=block_name: outputs.update({key: args[0]}))
        block.norm1.register_forward_hook(lambda m, args, out, key=block_name: outputs.update({key + 'n': out}))
    with torch.no_grad():
        expected = backbone(images)
    before = dict(outputs)
    layers = look(backbone, images)
    with torch.no_grad():
        again = backbone(images)
    assert all(torch.equal(one, other) for one, other in zip(expected, again, strict=True))

    assert [layer.name for layer in layers] == list(blocks)
    for layer in layers:
        attention = layer.attention
        seen = (
            (attention_weights(attention.query, attention.key, attention.mask) @ attention.value)
            .permute(0, 2, 1, 3)
            .flatten(2)
        )  # (M, Q, C)
        torch.testing.assert_close(seen, before[layer.name].view(seen.shape), rtol=1e-4, atol=1e-5)
        assert len(attention.query_places) == len(attention.query)
        assert attention.query_places.shape[1:] == (attention.query.shape[2], 2)
        assert attention.key_places.shape[1:] == (attention.key.shape[2], 2)
        tokens = -(-80 // layer.stride) * -(-56 // layer.stride)
        assert attention.query_places.isfinite().all(dim=-1).sum() == tokens
        height, width = layer.after.shape[:2]
        assert (height, width) == (-(-80 // layer.stride), -(-56 // layer.stride))
        torch.testing.assert_close(layer.after.flatten(0, 1), before[layer.name + 'n'].flatten(0, 2)[-tokens:])
        assert layer.num_heads == attention.query.shape[1]


@pytest.mark.parametrize('name', BACKBONES)
def test_places_are_those_of_the_tokens_that_attention_gets(name, monkeypatch):
    """Queries and keys that hold nothing but their token's place: what stands where is read from the numbers."""
    backbone = BACKBONES[name]().eval()
    for block in find_blocks(backbone).values():
        attn = block.attn
        for parameter in attn.parameters():
            torch.nn.init.zeros_(parameter)
        for linear in (m for m in (getattr(attn, n, None) for n in ('q', 'kv', 'qkv')) if m is not None):
            per_part = attn.proj.in_features
            for start in range(0, linear.out_features, per_part):
                linear.weight.data[start, 0] = linear.weight.data[start + 1, 1] = 1.0
        if isinstance(getattr(attn, 'sr', None), torch.nn.Conv2d):
            attn.norm = torch.nn.Identity()
            for channel in (0, 1):
                attn.sr.weight.data[channel, channel] = 1 / attn.sr.weight[0, 0].numel()

        def places(module, args, out):
            with_class_token = out.shape[1] == 1
            grid = grid_places(10, 7) if with_class_token else grid_places(*out.shape[1:3])
            out = torch.zeros_like(out)
            out.flatten(0, 2)[int(with_class_token) :, :2] = grid.view(-1, 2)
            return out

        block.norm1.register_forward_hook(places)
    monkeypatch.setattr(F, 'gelu', lambda x, approximate='none': x)
    for layer in look(backbone, torch.randn(1, 3, 80, 56)):
        a = layer.attention
        for found, expected in ((a.query, a.query_places), (a.key, a.key_places)):
            placed = expected.isfinite().all(dim=-1)
            torch.testing.assert_close(found[:, 0, :, :2][placed], expected[placed])


def test_mean_attention_distance_is_over_the_tokens_of_the_image():
    """The windows of Swin reach beyond the grid."""
    attention = look(randomized(BACKBONES['swin']()), torch.randn(1, 3, 80, 56))[-1].attention
    weights = attention_weights(attention.query, attention.key, attention.mask)
    each = attention_distance(weights, attention.query_places, attention.key_places)  # (M, N, Q)
    is_token = attention.query_places.isfinite().all(dim=-1)
    assert not is_token.all()
    torch.testing.assert_close(attention.mean_distances(), each.transpose(1, 2)[is_token].mean(dim=0))


def test_uniform_attention_distance_excludes_shifted_windows():
    """Swin at 3 x 3 tokens in windows of 3, shifted by 1: regions of 2 x 2, 2 x 1, 1 x 2 and 1 x 1 tokens."""
    layer = look(Swin(dict(PYRAMID, depths=(2, 1)), window_size=3), torch.randn(1, 3, 12, 12))[1]
    regions = ((2, 2), (2, 1), (1, 2), (1, 1))
    sums = [
        attention_distance(torch.full((1, 1, h * w, h * w), 1 / (h * w)), *[grid_places(h, w).view(1, -1, 2)] * 2)
        for h, w in regions
    ]
    expected = sum(s.sum() for s in sums) / 9
    torch.testing.assert_close(layer.attention.mean_distances(uniform=True), expected.expand(1))


def test_padding_has_no_place():
    """An image of 40 x 32 pixels in a batch of 64 x 64: what is measured is inside."""
    backbone = randomized(BACKBONES['vit']())
    images = note_image_sizes(F.pad(torch.randn(1, 3, 40, 32), (0, 32, 0, 24)), [(40, 32)])
    layers = look(backbone, images)
    for layer in layers:
        assert layer.before.shape[:2] == (5, 4)
        assert layer.attention.query_places.isfinite().all(dim=-1).sum() == 20
        assert layer.attention.key_places.nan_to_num(0).amax(dim=(0, 1)).tolist() == [4.5, 3.5]
        assert layer.attention.mean_distances().isfinite().all()


@pytest.mark.parametrize('norm', ['DTN', 'LN'])
def test_third_party_models_have_the_tokens_of_their_first_norms(norm):
    """timm's ViT: without the class token, and within the image of a padded batch."""
    backbone = TimmBackbone(
        'vit_tiny_patch16_224',
        dict(type=norm),
        timm_args=dict(embed_dim=32, depth=2, num_heads=4, dynamic_img_size=True),
        autocast_dtype='bfloat16',
    )
    images = note_image_sizes(F.pad(torch.randn(1, 3, 64, 32), (0, 32)), [(64, 32)])
    layers = look(backbone, images)
    assert [(layer.name, layer.num_heads, layer.stride, layer.attention) for layer in layers] == [
        (f'net.model.blocks.{i}', 4, 16, None) for i in range(2)
    ]
    model = backbone.net.model
    with torch.no_grad():
        tokens = model._pos_embed(model.patch_embed(images))[:, 1:].unflatten(1, (4, 4))
        normalized = model.blocks[0].norm1.norm(tokens, torch.tensor([[4, 2]]))
    torch.testing.assert_close(layers[0].before, tokens[0, :, :2])
    torch.testing.assert_close(layers[0].after, normalized[0, :, :2])
    assert backbone.autocast_dtype == 'bfloat16'
