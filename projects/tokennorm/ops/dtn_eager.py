"""Dynamic Token Normalization in torch operations: the reference implementation.

Differentiable any number of times, in any precision, on any device, under compilers and exporters.

Letters of the shapes: B batch, H x W grid, C channels, N heads, D = C / N channels per head.
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor

from tokennorm.ops.moments import tokens_inside
from tokennorm.ops.tensors import result_dtype, without_autocast


def eager_dtn(
    x: Tensor,
    *parameters: Tensor | None,
    eps: float = 1e-5,
    pool: int = 1,
    form: Literal['paper', 'published'] = 'paper',
    valid: Tensor | None = None,
    products: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
) -> Tensor:
    """`dtn` in torch operations. Arguments and result are those of `dtn`, the first six by position.

    Nothing is checked. `products` computes P x and P (x * x) in place of `matrix_products`.
    """
    out_dtype = result_dtype(x)
    dtype = torch.promote_types(x.dtype, torch.float32)
    with without_autocast(x):
        x = x.to(dtype)
        weight, bias, mean_logit, var_logit, position = (t if t is None else t.to(dtype) for t in parameters)
        head_dim = x.shape[-1] // position.shape[0]
        if form == 'published':
            x = _divide_by_head_rms(x, position.shape[0], eps)
        inside, given = tokens_inside(x, valid), x
        if inside is not None:  # a NaN in the padding must not reach the gradients of the tokens inside
            x = x.where(inside, 0)
        own_mean, own_var = intra_token_stats(x, unbiased=form == 'published')
        inter_mean, inter_var = _window_stats(x, inside, position, pool, valid, products or matrix_products)
        # What depends on windows only is computed before it is repeated for their tokens.
        x = x - own_mean
        if mean_logit is not None:  # no subtractions: OpenVINO would negate in a pass of its own
            inter = _per_channel(sigmoid(-mean_logit), head_dim)
            x = x + (own_mean * inter + _repeat_windows(inter_mean * -inter, pool, x))
        # 1 - lambda is the sigmoid of the negative logit: without cancellation where lambda is near 1.
        intra, inter = (_per_channel(sigmoid(logit), head_dim) for logit in (var_logit, -var_logit))
        var = own_var * intra + _repeat_windows(inter_var * inter + eps, pool, x)
        x = x / var.sqrt() * weight + bias
        if inside is not None:
            x = x.where(inside, F.layer_norm(given, weight.shape, weight, bias, eps))
        return x.to(out_dtype)


def intra_token_stats(x: Tensor, unbiased: bool = False) -> tuple[Tensor, Tensor]:
    """Eq. 2: mean and variance over the channels of each token, (B, H, W, C) -> 2 x (B, H, W, 1)."""
    mean = x.mean(dim=-1, keepdim=True)  # two means: torch.var_mean is slow on a CPU
    var = (x - mean).square().mean(dim=-1, keepdim=True)
    return mean, var * (x.shape[-1] / (x.shape[-1] - 1)) if unbiased else var


def inter_token_stats(x: Tensor, position: Tensor, pool: int = 1) -> tuple[Tensor, Tensor]:
    """The inter-token terms of Eq. 5: P x and P (x * x) - (P x) * (P x), for each head.

    With `pool` > 1 (paper, Sec. 3.3 and B.1) they are computed on the grid averaged over pool x pool windows, offsets
    counted in pooled tokens, and repeated to full size. The last windows may be partial: they average what they have.
    """
    mean, var = (_repeat_windows(s, pool, x) for s in _window_stats(x, None, position, pool, None, matrix_products))
    return mean, var


def _window_stats(
    x: Tensor,
    inside: Tensor | None,
    position: Tensor,
    pool: int,
    valid: Tensor | None,
    products: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """`inter_token_stats` of each window, of tokens that are 0 where they are not `inside` (B, H, W, 1).

    With `valid`, the height and width of each image's valid rectangle (B, 2), only tokens inside count; P of a token
    outside runs over those inside too.
    """
    x, shift, counts = windows_to_filter(x, inside, pool, valid)
    a1, a2, a3 = position.unbind(dim=-1)
    p_x = axis_weights(a1, a2, x.shape[2], counts[0])
    p_y = axis_weights(a1, a3, x.shape[1], counts[1])
    mean, square = products(x - shift, p_x, p_y)
    var = (square - mean * mean).clamp(min=0)
    return mean + shift, var


def windows_to_filter(
    x: Tensor, inside: Tensor | None, pool: int, valid: Tensor | None
) -> tuple[Tensor, Tensor, tuple[Tensor | None, Tensor | None]]:
    """Means of windows (B, h, w, C), the constant of each channel (B, 1, 1, C) to subtract from them before squaring,
    and how many columns and rows of windows of each image P runs over, (B,), or None for all.
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    counts = (None, None)
    if pool > 1:
        x = average_windows(x.to(dtype), pool)
    if valid is not None:
        # The fraction of valid tokens in each window: partial windows average only those.
        if pool > 1:
            share = average_windows(inside.to(dtype), pool)
            x = x / share.where(share > 0, 1)
        # Not a tensor of both sides: torch.export would fix them at those of its example.
        counts = tuple(-(-valid[:, i].clamp(1, inside.shape[1 + i]).long() // pool) for i in (1, 0))
    # Rows of P sum to 1, so a constant subtracted from each channel comes back in the mean and changes no variance. It
    # keeps the digits of E[x^2] - E[x]^2 in channels with a large offset. A channel still loses digits if it varies
    # far more over the grid than around a token.
    if valid is None:
        shift = x.mean(dim=(1, 2), keepdim=True, dtype=dtype).detach()
    else:
        shift = x.sum(dim=(1, 2), keepdim=True, dtype=dtype).detach() / (counts[0] * counts[1])[:, None, None, None]
    return x, shift, counts


def matrix_products(x: Tensor, p_x: Tensor, p_y: Tensor) -> tuple[Tensor, Tensor]:
    """P x and P (x * x) for x (B, h, w, C) and P of both axes, ([B,] N, w, w) and ([B,] N, h, h): 2 x (B, h, w, C)."""
    # The axis that P multiplies comes directly after the head axis, and the batch too if P differs between images. So
    # each product is one matrix product, and P is not copied.
    head_dim = x.shape[-1] // p_x.shape[-3]
    sizes = dict(zip('byx', x.shape, strict=False), d=2 * head_dim)
    x = rearrange(x, 'b y x (n d) -> b y x n d', d=head_dim)
    moments = torch.cat([x, x * x], dim=-1)
    lead, rest = ('n', 'b ') if p_x.ndim == 3 else ('b n', '')
    moments = p_x @ rearrange(moments, f'b y x n d -> {lead} x ({rest}y d)')
    moments = p_y @ rearrange(moments, f'{lead} x ({rest}y d) -> {lead} y ({rest}x d)', **sizes)
    moments = rearrange(moments, f'{lead} y ({rest}x d) -> b y x n d', **sizes)
    mean, square = (rearrange(t, 'b y x n d -> b y x (n d)') for t in moments.chunk(2, dim=-1))
    return mean, square


def axis_weights(square: Tensor, linear: Tensor, size: int, valid: Tensor | None = None) -> Tensor:
    """One axis of Eq. 6: softmax_j(square (j - i)^2 + linear (j - i)), (N, size, size).

    `square` is a1, `linear` a2 (x axis) or a3 (y axis) of each head, (N,). With `valid`, the leading positions of each
    image that j runs over, (B,), the weights are (B, N, size, size).
    """
    index = torch.arange(size, dtype=square.dtype, device=square.device)
    offset = index[None, :] - index[:, None]
    exponent = square[:, None, None] * (offset * offset) + linear[:, None, None] * offset
    if valid is not None:
        exponent = exponent.where(index < valid[:, None, None, None], float('-inf'))
    return exponent.softmax(dim=-1)


def sigmoid(logit: Tensor) -> Tensor:
    """Sigmoid whose derivative keeps its digits: that of `torch.sigmoid`, s (1 - s), is 0 in float32 at 20."""
    return F.logsigmoid(logit).exp()


def _per_channel(ratio: Tensor, head_dim: int) -> Tensor:
    """(N,) -> (C,). The gradient is then summed in two steps, with smaller rounding errors."""
    return ratio[:, None].expand(-1, head_dim).flatten()


def average_windows(x: Tensor, pool: int) -> Tensor:
    """Mean over pool x pool windows, (B, H, W, C) -> (B, ceil(H / pool), ceil(W / pool), C)."""
    x = rearrange(x, 'b h w c -> b c h w')
    x = F.avg_pool2d(x, pool, ceil_mode=True, count_include_pad=False)
    return rearrange(x, 'b c h w -> b h w c')


def _repeat_windows(windows: Tensor, pool: int, x: Tensor) -> Tensor:
    """Each window's values for its tokens: (B, ceil(H / pool), ceil(W / pool), C) -> the shape of x, (B, H, W, C)."""
    if pool == 1:
        return windows
    windows = repeat(windows, 'b h w c -> b h (w p) c', p=pool)[:, :, : x.shape[2]]
    return repeat(windows, 'b h w c -> b (h p) w c', p=pool)[:, : x.shape[1]]


def _divide_by_head_rms(x: Tensor, num_heads: int, eps: float) -> Tensor:
    """The published code's first step: each head of each token over its root mean square, (B, H, W, C) -> same."""
    heads = rearrange(x, 'b h w (n d) -> b h w n d', n=num_heads)
    heads = heads / (heads.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    return rearrange(heads, 'b h w n d -> b h w (n d)')
