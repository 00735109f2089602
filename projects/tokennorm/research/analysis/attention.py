"""Attention weights and how far they reach (DTN paper, Fig. 2 and B.1).

Letters of the shapes: M windows of an image (1 where attention is over the whole grid), N heads, Q queries, K keys, D
channels a head, H x W grid. A place is (y, x) in tokens, the centre of token (i, j) at (i + 0.5, j + 0.5).
"""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """The weights that `F.scaled_dot_product_attention` gives its values, rows summing to 1.

    Args:
        query: (M, N, Q, D).
        key: (M, N, K, D).
        mask: Added to the logits, or bool, false where a key is not to be seen; it broadcasts to (M, N, Q, K).
        scale: Factor of the logits; None is 1 / sqrt(D).

    Returns:
        (M, N, Q, K).
    """
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        logits = logits.masked_fill(~mask, float('-inf')) if mask.dtype == torch.bool else logits + mask
    return logits.softmax(dim=-1)


def attention_distance(weights: Tensor, query_places: Tensor, key_places: Tensor) -> Tensor:
    """How far each query looks: d_i of B.1, the sum over keys j of A_ij times the Euclidean distance of i and j.

    Keys without a place (a class token, padding) are left out, and the weights of the others scaled to sum to 1.

    Args:
        weights: A, (M, N, Q, K).
        query_places: (M, Q, 2); NaN for what has no place.
        key_places: (M, K, 2), likewise.

    Returns:
        Distances (M, N, Q) in tokens; NaN for queries without a place, and for those that see no key that has one.
    """
    distance = (query_places[:, :, None] - key_places[:, None]).norm(dim=-1)  # (M, Q, K)
    placed = key_places.isfinite().all(dim=-1)[:, None, None]
    weights = weights * placed
    distance = distance.where(placed[:, 0], 0)
    return (weights * distance[:, None]).sum(dim=-1) / weights.sum(dim=-1)


def grid_places(height: int, width: int) -> Tensor:
    """The centres of a grid's tokens, (H, W, 2)."""
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing='ij')
    return torch.stack([y, x], dim=-1)


def window_places(height: int, width: int, window: int, shift: tuple[int, int] = (0, 0)) -> Tensor:
    """The centres of the tokens in each window, (M, window^2, 2); NaN for those of the padding to whole windows.

    Args:
        height, width: Size of the grid.
        window: Side of a window, in tokens.
        shift: Rows and columns that Swin's cyclic shift moves from the start of the padded grid to its end.
    """
    places = grid_places(height, width)
    places = F.pad(places, (0, 0, 0, -width % window, 0, -height % window), value=math.nan)
    places = places.roll((-shift[0], -shift[1]), dims=(0, 1))
    return rearrange(places, '(h wh) (w ww) yx -> (h w) (wh ww) yx', wh=window, ww=window)


def reduced_places(height: int, width: int, ratio: int) -> Tensor:
    """The centres of PVT's keys, each of ratio x ratio tokens, (1, K, 2). What is left over at the end has no key; on
    a grid smaller than one key, it is the grid's centre."""
    y, x = (torch.arange(max(size // ratio, 1)) * ratio + min(ratio, size) / 2 for size in (height, width))
    return torch.cartesian_prod(y, x)[None]


def averaged_places(height: int, width: int, cells: int) -> Tensor:
    """The centres of the cells that `F.adaptive_avg_pool2d` averages a grid into, PVTv2-Li's keys, (1, cells^2, 2)."""
    j = torch.arange(cells)
    y, x = (((j * size) // cells - (-(j + 1) * size) // cells) / 2 for size in (height, width))
    return torch.cartesian_prod(y, x)[None]


def without_place_beyond(places: Tensor, inside: tuple[int, int]) -> Tensor:
    """Places (..., 2) with NaN for those below and right of the first rows and columns of a grid, which are image."""
    beyond = (places > torch.tensor(inside)).any(dim=-1, keepdim=True)
    return places.masked_fill(beyond, math.nan)
