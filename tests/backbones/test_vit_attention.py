"""Attention of ViT: windows and relative positions, against loops over heads, queries and keys."""

import pytest
import torch
import torch.nn.functional as F

from tests.helpers.compare import assert_near
from tests.helpers.weights import randomize
from tests.reference import attention_written_out
from tokennorm.backbones.vit_attention import Attention, WindowAttention


@pytest.mark.parametrize(('height', 'width'), [(6, 3), (3, 3), (5, 7), (1, 2), (4, 9)])
def test_attention_within_windows_is_that_of_each_window_alone(height, width):
    attn = randomize(WindowAttention(12, num_heads=3, window=3)).double()
    x = torch.randn(2, height, width, 12, dtype=torch.float64)
    assert_near('out', attn(x), attention_written_out(attn, x, 3), dtype=torch.float64)
    if height == width == 3:
        assert_near('whole', attn(x), Attention.forward(attn, x), dtype=torch.float64)


def resized_by_hand(table, size):
    """Linear, the rows' centers spread evenly over the same length, one entry at a time."""
    length = 2 * size - 1
    rows = []
    for i in range(length):
        at = min(max((i + 0.5) * len(table) / length - 0.5, 0), len(table) - 1)
        low = min(int(at), len(table) - 2) if len(table) > 1 else 0
        high = min(low + 1, len(table) - 1)
        rows.append(table[low] * (1 - (at - low)) + table[high] * (at - low))
    return torch.stack(rows)


def attention_with_positions_written_out(attn, x, tables):
    """One head, one query and one key at a time, (H, W, C), with tables of the grid's own size."""
    height, width, dims = x.shape
    head_dims = dims // attn.num_heads
    q, k, v = (x @ attn.qkv.weight.T + attn.qkv.bias).split(dims, dim=-1)
    out = torch.zeros_like(x)
    tokens = [(y, x) for y in range(height) for x in range(width)]
    for head in range(attn.num_heads):
        part = slice(head * head_dims, (head + 1) * head_dims)
        for y, x in tokens:
            query = q[y, x, part]
            logits = [
                query @ k[ky, kx, part] / head_dims**0.5
                + query @ tables[0][y - ky + height - 1]
                + query @ tables[1][x - kx + width - 1]
                for ky, kx in tokens
            ]
            shares = torch.stack(logits).softmax(-1)
            out[y, x, part] = sum(share * v[ky, kx, part] for share, (ky, kx) in zip(shares, tokens, strict=True))
    return out @ attn.proj.weight.T + attn.proj.bias


@pytest.mark.parametrize('grid', [(3, 4), (2, 2), (5, 3), (2, 6)])
def test_relative_positions_are_those_written_out(grid):
    """Forward and the gradients of the tables, at the grid of the tables and at others."""
    attn = randomize(Attention(8, num_heads=2, rel_pos=(3, 4)), 0.5).double()
    x = torch.randn(2, *grid, 8, dtype=torch.float64)
    tables = [attn.rel_pos_h, attn.rel_pos_w]
    assert [tuple(table.shape) for table in tables] == [(5, 4), (7, 4)]
    resized = [resized_by_hand(t, size) if size != n else t for t, size, n in zip(tables, grid, (3, 4), strict=True)]
    expected = torch.stack([attention_with_positions_written_out(attn, image, resized) for image in x])
    actual = attn(x)
    # Tables are resized in float32, as positions are.
    dtype = torch.float64 if grid == (3, 4) else torch.float32
    assert_near('out', actual, expected, dtype=dtype)
    weights = torch.randn_like(x)
    got, want = (torch.autograd.grad((out * weights).sum(), tables) for out in (actual, expected))
    for name, mine, theirs in zip(('rows', 'columns'), got, want, strict=True):
        assert_near(name, mine, theirs, 'backward', dtype)


def test_relative_positions_in_windows_are_those_of_each_window():
    attn = randomize(WindowAttention(8, num_heads=2, window=3, rel_pos=True), 0.5).double()
    x = torch.randn(1, 6, 5, 8, dtype=torch.float64)
    padded = F.pad(x, (0, 0, 0, 1))
    tables = [attn.rel_pos_h, attn.rel_pos_w]
    windows = [
        [attention_with_positions_written_out(attn, padded[0, y : y + 3, x : x + 3], tables) for x in (0, 3)]
        for y in (0, 3)
    ]
    expected = torch.cat([torch.cat(row, dim=1) for row in windows])[None, :, :5]
    assert_near('out', attn(x), expected, dtype=torch.float64)
