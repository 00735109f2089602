"""Attention weights and attention distances (DTN paper, Fig. 2 and B.1).

Shapes: M windows of an image (1 for attention over the whole grid), N heads, Q queries, K keys, D channels per head,
H x W grid. A place is (y, x) in tokens; the center of token (i, j) is (i + 0.5, j + 0.5).
"""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.backbones import pvt, pvt_v2, swin, vit


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """Returns the weights (M, N, Q, K) that `F.scaled_dot_product_attention` multiplies its values by.

    Of a query (M, N, Q, D) and a key (M, N, K, D); the mask is added to the logits.
    """
    logits = query @ key.mT * query.shape[-1] ** -0.5
    return (logits if mask is None else logits + mask).softmax(dim=-1)


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


def attention_places(
    attn: nn.Module, grid: tuple[int, int], shift: tuple[int, int] = (0, 0), has_class_token: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the places of an attention's queries (M, Q, 2) and keys (M, K, 2), in tokens.

    They are NaN for class tokens and for the padding of windows. PVT's and PVTv2's keys are at the centers of the
    tokens that they reduce. `shift` is that of Swin's windows.
    """
    if isinstance(attn, swin.WindowAttention | vit.WindowAttention):
        places = window_places(*grid, attn.window, shift)
        return places, places
    places = grid_places(*grid)
    keys = rearrange(places, 'h w yx -> yx h w')
    if isinstance(attn, pvt_v2.LinearSpatialReductionAttention):
        keys = F.adaptive_avg_pool2d(keys, 7)
    elif isinstance(attn, pvt.SpatialReductionAttention):
        # a grid smaller than one key has a key at its center
        keys = F.avg_pool2d(keys, [min(attn.sr_ratio, side) for side in grid], stride=attn.sr_ratio)
    both = places.view(1, -1, 2), rearrange(keys, 'yx h w -> 1 (h w) yx')
    queries, keys = (F.pad(part, (0, 0, int(has_class_token), 0), value=math.nan) for part in both)
    return queries, keys


def places_inside(places: Tensor, height: int, width: int) -> Tensor:
    """Returns places (..., 2) with NaN for those below or right of the image, the first rows and columns of a grid."""
    beyond = (places > places.new_tensor([height, width])).any(dim=-1, keepdim=True)
    return places.masked_fill(beyond, math.nan)
