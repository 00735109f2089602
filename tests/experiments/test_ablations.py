"""The papers' ablations: DTN with fixed parts or banded P, norms after a layer, Eq. 6 in the attention."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from experiments.ablations import AblatedDTN, AblatedPVT, AblatedViT, BandedDTN
from experiments.ablations.vit import PLACEMENTS
from tests.helpers.compare import assert_near
from tests.helpers.weights import redraw
from tests.reference import dense_dtn
from tokennorm.norms import DTN, LayerNorm

PVT_ARCH = dict(embed_dims=(8, 16), depths=(1, 1), num_heads=(2, 4), mlp_ratios=(2, 2), sr_ratios=(2, 1))
ARCH = dict(embed_dims=8, depths=2, num_heads=2, mlp_ratios=2)


def vit(**kwargs):
    return AblatedViT(**dict(arch=ARCH, patch_size=8, pretrain_img_size=32, drop_path_rate=0.0) | kwargs)


@pytest.mark.parametrize('value', [0, 0.5, 1, (None, 0.25), (1, None)])
def test_a_fixed_lambda_is_exactly_that_and_not_learned(value):
    norm = AblatedDTN(8, 2, fixed_lambda=value)
    pair = value if isinstance(value, tuple) else (value, value)
    for name, fixed in zip(('mean_logit', 'var_logit'), pair, strict=True):
        ratio = getattr(norm, name).sigmoid()
        assert torch.equal(ratio, torch.full((2,), 0.5 if fixed is None else float(fixed)))
        assert (name in dict(norm.named_parameters())) == (name in norm.state_dict()) == (fixed is None)
    learned = DTN(8, 2)
    for name, fixed in zip(('mean_logit', 'var_logit'), pair, strict=True):
        if fixed is not None:
            nn.init.constant_(getattr(learned, name), torch.tensor(float(fixed)).logit().clamp(-30, 30).item())
    x = torch.randn(2, 5, 6, 8)
    assert_near('y', norm(x), learned(x))
    (norm(x) * torch.randn_like(x)).sum().backward()
    assert all(p.grad.isfinite().all() for p in norm.parameters())


def banded(tokens, band):
    """Fig. 5: ones within a band of a T x T matrix, (T, T), divided by the sum of their row."""
    at = torch.arange(tokens)
    ones = ((at - at[:, None]).abs() <= band // 2).double()
    return ones / ones.sum(dim=1, keepdim=True)


def randomized_band(dtype=torch.float64, **kwargs):
    return redraw(BandedDTN(12, 3, **kwargs).to(dtype))


@pytest.mark.parametrize(('band', 'pool', 'fixed'), [(3, 1, None), (5, 2, None), (5, 1, 0), (41, 2, 0)])
def test_banded_dtn_is_algorithm_1_with_the_matrix_of_figure_5(band, pool, fixed):
    norm = randomized_band(band=band, pool=pool, fixed_lambda=fixed)
    height, width = 5, 7
    x = 3 + torch.randn(2, height, width, 12).double()
    p = banded(-(-height // pool) * -(-width // pool), band).expand(3, -1, -1)
    expected = dense_dtn(
        x.flatten(1, 2), (height, width), norm.weight, norm.bias, norm.mean_logit, norm.var_logit, None,
        eps=norm.eps, pool=pool, positional_weights=p,
    )  # fmt: skip
    assert_near('y', norm(x).flatten(1, 2), expected, dtype=torch.float64)
    assert not norm.position.requires_grad


def test_banded_dtn_normalizes_padded_images_as_if_alone():
    norm = randomized_band(pool=2, band=5)
    x = torch.randn(2, 6, 7, 12).double()
    out = norm(x, torch.tensor([[6, 7], [3, 5]]))
    assert_near('whole', out[:1], norm(x[:1]), dtype=torch.float64)
    assert_near('inside', out[1:, :3, :5], norm(x[1:, :3, :5]), dtype=torch.float64)
    expected = F.layer_norm(x, (12,), norm.weight, norm.bias, norm.eps)
    assert_near('outside', out[1, 3:], expected[1, 3:], dtype=torch.float64)
    assert norm.float()(x.bfloat16()).dtype == torch.bfloat16


def test_position_weights_are_initialized_and_learned():
    kinds = {
        kind: AblatedDTN(8, 4, position_weights=kind).position for kind in ('eq7', 'trunc_normal', 'frozen', 'uniform')
    }
    assert [p.requires_grad for p in kinds.values()] == [True, True, False, False]
    assert kinds['eq7'].tolist() == kinds['frozen'].tolist() == [[-1, x, y] for x in (-1, 1) for y in (-1, 1)]
    assert torch.equal(kinds['uniform'], torch.zeros(4, 3))
    assert 0 < kinds['trunc_normal'].abs().max() < 0.1


@pytest.mark.parametrize(('of_attention', 'of_mlp'), [*zip(PLACEMENTS, PLACEMENTS, strict=True), ('pre', 'post')])
def test_each_placement_is_its_formula(of_attention, of_mlp):
    block = redraw(vit(norm_placement=(of_attention, of_mlp)).blocks[0], 0.5)
    x = torch.randn(2, 3, 4, 8)

    def normalize(x, norm):
        return F.layer_norm(x, (8,), norm.weight, norm.bias, norm.eps)

    expected = x
    for placement, layer, pre, post in (
        (of_attention, block.attn, block.norm1, block.post_norm1),
        (of_mlp, block.mlp, block.norm2, block.post_norm2),
    ):
        y = normalize(expected, pre) if placement != 'post' else expected
        y = normalize(layer(y), post) if placement != 'pre' else layer(y)
        expected = expected + y
        assert (type(pre) is LayerNorm, type(post) is LayerNorm) == (placement != 'post', placement != 'pre')
    assert_near('tokens', block(x), expected)


def test_eq_6_positions_are_in_the_first_l_dtn_blocks():
    model = vit(rel_pos='eq6', l_dtn=1, out_type='cls_token')
    positions = {name: p for name, p in model.named_parameters() if name.endswith('attn.position')}
    assert list(positions) == ['blocks.0.attn.position']
    assert positions['blocks.0.attn.position'].tolist() == [[-1, 0, 0]] * 2
    assert vit(rel_pos='eq6', l_dtn=1, arch=ARCH | dict(num_heads=4)).blocks[0].attn.position.tolist() == [
        [-1, x, y] for x in (-1, 1) for y in (-1, 1)
    ]
    with pytest.raises(ValueError, match="rel_pos='eq6' needs l_dtn above 0"):
        vit(rel_pos='eq6')


@pytest.mark.parametrize('global_indices', [(0, 1), ()])
def test_attention_with_eq_6_adds_its_exponent_to_the_logits(global_indices):
    """On the whole grid, or in a window as large as the grid."""
    attn = vit(rel_pos='eq6', l_dtn=2, window_size=4, global_indices=global_indices).blocks[0].attn
    nn.init.normal_(attn.position, std=0.3)
    x = torch.randn(1, 4, 4, 8)
    q, k, v = attn.qkv(x).reshape(16, 3, 2, 4).permute(1, 2, 0, 3)
    at = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    dy, dx = (at[None] - at[:, None]).unbind(-1)
    a1, a2, a3 = attn.position[:, :, None, None].unbind(1)
    logits = q @ k.mT / 2 + a1 * (dx**2 + dy**2) + a2 * dx + a3 * dy
    expected = attn.proj((logits.softmax(-1) @ v).permute(1, 0, 2).reshape(1, 4, 4, 8))
    assert_near('tokens', attn(x), expected)


def pvt(**kwargs):
    return AblatedPVT(**dict(arch=PVT_ARCH, pretrain_img_size=32, drop_path_rate=0.0) | kwargs)


@pytest.mark.parametrize(('stage', 'sr_ratio'), [(0, 2), (1, 1)])
@pytest.mark.parametrize(('height', 'width'), [(5, 6), (1, 3)])
def test_attention_of_pvt_with_eq_6_equals_its_transcription(stage, sr_ratio, height, width):
    """In float64, one head, query and key at a time. A key is at the center of its tokens; shifts are in keys."""
    attn = redraw(pvt(rel_pos='eq6').double().stages[stage].blocks[0].attn, 0.3)
    x = torch.randn(1, height, width, attn.q.in_features).double()
    reduced = attn.reduce(x)
    rows, columns = reduced.shape[1:3]
    assert (rows, columns) == (max(height // sr_ratio, 1), max(width // sr_ratio, 1))
    q = attn.q(x)[0].unflatten(-1, (attn.num_heads, -1))
    k, v = (t.unflatten(-1, (attn.num_heads, -1)) for t in attn.kv(reduced)[0].chunk(2, dim=-1))
    mixed = torch.zeros_like(q)
    for head, (a1, a2, a3) in enumerate(attn.position.double()):
        for y in range(height):
            for x_ in range(width):
                logits, values = [], []
                for ky in range(rows):
                    for kx in range(columns):
                        center_y, center_x = (at * sr_ratio + (sr_ratio - 1) / 2 for at in (ky, kx))
                        dy, dx = (center_y - y) / sr_ratio, (center_x - x_) / sr_ratio
                        product = (q[y, x_, head] * k[ky, kx, head]).sum() / 4**0.5
                        logits.append(product + a1 * (dx**2 + dy**2) + a2 * dx + a3 * dy)
                        values.append(v[ky, kx, head])
                mixed[y, x_, head] = torch.stack(logits).softmax(0) @ torch.stack(values)
    assert_near('tokens', attn(x), attn.proj(mixed.flatten(-2))[None], dtype=torch.float64)
