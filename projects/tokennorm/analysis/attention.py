"""Attention weights and attention distances (DTN paper, Fig. 2 and B.1).

Shapes: M windows of an image (1 for attention over the whole grid), N heads, Q queries, K keys, D channels per head,
H x W grid. A place is (y, x) in tokens; the center of token (i, j) is (i + 0.5, j + 0.5).
"""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Returns the weights (M, N, Q, K) that `F.scaled_dot_product_attention` multiplies its values by.

    Of a query (M, N, Q, D) and a key (M, N, K, D). The mask is added to the logits, or bool, false for hidden keys. A
    `scale` of None is 1 / sqrt(D).
    """
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        logits = logits.masked_fill(~mask, float('-inf')) if mask.dtype == torch.bool else logits + mask
    return logits.softmax(dim=-1)


def attention_distance(weights: Tensor, query_places: Tensor, key_places: Tensor) -> Tensor:
    """Returns d_i of B.1 for each query: the sum over keys j of A_ij times the Euclidean distance of i and j.

    A is (M, N, Q, K), places are (M, Q, 2) and (M, K, 2), NaN for tokens without one: a class token, padding. Keys
    without a place are left out; the other weights are scaled to sum to 1. The distances (M, N, Q) are in tokens, NaN
    for queries without a place, and for queries that see no key with a place.
    """
    distance = (query_places[:, :, None] - key_places[:, None]).norm(dim=-1)  # (M, Q, K)
    placed = key_places.isfinite().all(dim=-1)[:, None, None]
    weights = weights * placed
    distance = distance.where(placed[:, 0], 0)
    return (weights * distance[:, None]).sum(dim=-1) / weights.sum(dim=-1)


def grid_places(height: int, width: int) -> Tensor:
    """The centers of a grid's tokens, (H, W, 2)."""
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing='ij')
    return torch.stack([y, x], dim=-1)


def window_places(height: int, width: int, window: int, shift: tuple[int, int] = (0, 0)) -> Tensor:
    """Returns the centers of the tokens in each window, (M, window^2, 2); NaN for padding to whole windows.

    `shift` are the rows and columns that Swin's cyclic shift moves from the beginning of the padded grid to its end.
    """
    places = grid_places(height, width)
    places = F.pad(places, (0, 0, 0, -width % window, 0, -height % window), value=math.nan)
    places = places.roll((-shift[0], -shift[1]), dims=(0, 1))
    return rearrange(places, '(h wh) (w ww) yx -> (h w) (wh ww) yx', wh=window, ww=window)


def reduced_places(height: int, width: int, ratio: int) -> Tensor:
    """Returns the centers of PVT's keys, each of ratio x ratio tokens, (1, K, 2).

    Tokens left over at the end have no key. On a grid smaller than one key, the key's place is the grid's center.
    """
    y, x = (torch.arange(max(size // ratio, 1)) * ratio + min(ratio, size) / 2 for size in (height, width))
    return torch.cartesian_prod(y, x)[None]


def averaged_places(height: int, width: int, side: int) -> Tensor:
    """Returns the centers of the windows of `F.adaptive_avg_pool2d`, PVTv2-Li's keys, (1, side^2, 2)."""
    j = torch.arange(side)
    y, x = (((j * size) // side - (-(j + 1) * size) // side) / 2 for size in (height, width))
    return torch.cartesian_prod(y, x)[None]


def without_place_beyond(places: Tensor, inside: tuple[int, int]) -> Tensor:
    """Returns places (..., 2) with NaN for places below or right of the image, the first rows and columns of a grid."""
    beyond = (places > torch.tensor(inside)).any(dim=-1, keepdim=True)
    return places.masked_fill(beyond, math.nan)
