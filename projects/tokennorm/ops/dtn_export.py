"""Dynamic Token Normalization in the operations that onnxruntime and OpenVINO compute fast, for exported files.

The result is that of `eager_dtn`. These runtimes compute a graph operation by operation, so that what takes the time is
how often all tokens are read and written. OpenVINO joins neighboring elementwise operations, but not across a reshape.
onnxruntime joins none, and takes a step of its own for each run of elements that broadcasting leaves together: a factor
of each token costs twice as much as one of a row of tokens, and ten times as much where both operands have one element
in the last axis. Hence:

- Tokens have one shape, that of `_as_rows`, from the first elementwise operation to the last.
- gamma and beta are repeated for a row of tokens. What is one number per token and head has the columns last.
- Tokens are masked in these small tensors and in those of windows, and nothing is selected by `where`.

Letters of the shapes: B batch, H x W grid, h x w windows of p x p tokens, C channels, N heads, D = C / N.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tokennorm.ops.dtn_eager import axis_weights, sigmoid
from tokennorm.ops.tensors import in_float32


def exported_dtn(
    x: Tensor, *parameters: Tensor | None, eps: float = 1e-5, pool: int = 1, valid: Tensor | None = None
) -> Tensor:
    """`dtn` in its 'paper' form. Arguments and result are those of `dtn`, the first six by position; x must be finite.

    Nothing is checked.
    """
    return in_float32(_any_size, x, *parameters, eps, pool, valid)


def _any_size(x: Tensor, *args: Any) -> Tensor:
    """`exported_dtn` with statistics in the dtype of x: pads sides that `pool` may not divide."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # it imports SymPy

    *parameters, eps, pool, valid = args
    height, width = x.shape[1:3]
    parameters = [t if t is None else t.to(x.dtype) for t in parameters]
    bottom, right = ((side + pool - 1) // pool * pool - side for side in (height, width))
    padded = not (statically_known_true(bottom == 0) and statically_known_true(right == 0))
    if padded:
        if valid is None:
            valid = torch.stack([torch.full_like(x[:, 0, 0, 0], side) for side in (height, width)], dim=1)
        x = F.pad(x, (0, 0, 0, right, 0, bottom))
    if valid is not None:
        valid = torch.stack([valid[:, 0].clamp(1, height), valid[:, 1].clamp(1, width)], dim=1)
    y = _normalized(x, *parameters, eps, pool, valid)
    return F.pad(y, (0, 0, 0, -right, 0, -bottom)) if padded else y  # torch.export would not know the sides of a slice


def _normalized(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean_logit: Tensor | None,
    var_logit: Tensor,
    position: Tensor,
    eps: float,
    pool: int,
    valid: Tensor | None,
) -> Tensor:
    """`exported_dtn` for sides that are multiples of `pool`, and `valid` within them or None."""
    batch, height, width, channels = x.shape
    heads = position.shape[0]
    masks = None if valid is None else [_leading(valid[:, i], x.shape[1 + i], x.dtype) for i in (0, 1)]
    windows, (p_y, p_x), shift = _windows(x, position, pool, valid, masks)

    # P x and P (x * x), heads first: (B, N, h, w, D). As in `eager_dtn`, a constant is subtracted before squaring.
    shift = shift.expand(-1, -1, -1, windows.shape[3], -1)
    u = windows - shift
    mean, square = (_product(t, p_y, p_x) for t in (u, u * u))
    var = (square - mean * mean).relu()
    inter_var = var * _of_head(sigmoid(-var_logit), 5)
    inter_mean = None if mean_logit is None else (mean + shift) * _of_head(sigmoid(-mean_logit), 5)

    own_mean = x.mean(dim=-1, keepdim=True)
    centered = x - own_mean
    own_var = (centered * centered).mean(dim=-1)
    own_mean = own_mean.squeeze(-1)
    # Each head's share of a token's own statistics, 1 in the padding: (B, N, H, W).
    inside = None if masks is None else masks[0][:, None, :, None] * masks[1][:, None, None, :]
    own_var = _share(own_var, var_logit, inside) + eps
    own_mean = own_mean[:, None] if mean_logit is None else _share(own_mean, mean_logit, inside)

    # Heads come first without pooling, where P's results are as large as the tokens, and last with it.
    if pool == 1:
        tokens = _heads_first(x, heads)
        own_mean, own_var = own_mean[..., None], own_var[..., None]
        gamma, beta = (t.view(heads, 1, 1, -1).expand(-1, 1, width, -1) for t in (weight, bias))
        if inside is not None:
            inter_var = inter_var * inside[..., None]
            inter_mean = None if inter_mean is None else inter_mean * inside[..., None]
    else:
        shape = (batch * (height // pool), pool, width * heads, channels // heads)
        tokens = x.reshape(shape)
        own_mean, own_var = (
            t.expand(-1, heads, -1, -1).permute(0, 2, 3, 1).reshape(*shape[:3], 1) for t in (own_mean, own_var)
        )
        gamma, beta = (t.view(1, heads, -1).expand(width, -1, -1).reshape(1, 1, *shape[2:]) for t in (weight, bias))
        inter_var = _as_rows(inter_var, pool, masks)
        inter_mean = None if inter_mean is None else _as_rows(inter_mean, pool, masks)
    y = tokens - own_mean
    if inter_mean is not None:
        y = y - inter_mean
    y = y / (inter_var + own_var).sqrt() * gamma + beta
    return (y.permute(0, 2, 3, 1, 4) if pool == 1 else y).reshape(x.shape)


def _windows(
    x: Tensor, position: Tensor, pool: int, valid: Tensor | None, masks: list[Tensor] | None
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    """Averages of windows (B, N, h, w, D), P of both axes, and a mean of each channel (B, N, 1, 1, D)."""
    batch, height, width, channels = x.shape
    rows, columns = sides = height // pool, width // pool
    counts: list[Tensor | None] = [None, None]
    shares = [x.new_ones(1, n) / n for n in sides]  # `1 / n` would be a number that .pt2 files cannot have
    of_rows = x.new_full((1, 1, pool), 1 / pool**2)
    of_columns: Tensor | None = None
    if valid is not None and masks is not None:
        ends = [-(-valid[:, i].long() // pool) for i in (0, 1)]
        counts = [*ends]
        shares = [_leading(end, side, x.dtype) / end[:, None] for end, side in zip(ends, sides, strict=True)]
        parts = [mask.view(batch, -1, pool) for mask in masks]
        of_rows, of_columns = (part / part.sum(dim=-1, keepdim=True).clamp(min=1) for part in parts)
    if pool > 1:
        x = of_rows[:, :, None] @ x.reshape(batch, rows, pool, width * channels)
        if of_columns is not None:
            x = x.reshape(batch, rows, columns, pool, channels) * of_columns[:, None, :, :, None]
        first, *others = x.reshape(batch, rows, columns, pool * channels).split(channels, dim=-1)
        x = sum(others, start=first)
    of_windows = (shares[0][:, :, None] * shares[1][:, None]).reshape(-1, 1, rows * columns)
    shift = _heads_first((of_windows @ x.reshape(batch, rows * columns, channels))[:, None], position.shape[0])
    a1, a2, a3 = position.unbind(dim=-1)
    products = axis_weights(a1, a3, rows, counts[0]), axis_weights(a1, a2, columns, counts[1])
    return _heads_first(x, position.shape[0]), products, shift


def _product(x: Tensor, p_y: Tensor, p_x: Tensor) -> Tensor:
    """P x for windows (B, N, h, w, D)."""
    x = p_x.reshape(-1, *p_x.shape[-3:])[:, :, None] @ x
    return (p_y.reshape(-1, *p_y.shape[-3:]) @ x.flatten(3)).view(x.shape)


def _heads_first(x: Tensor, heads: int) -> Tensor:
    """(B, h, w, C) -> (B, N, h, w, D)."""
    return x.unflatten(-1, (heads, -1)).permute(0, 3, 1, 2, 4)


def _as_rows(windows: Tensor, pool: int, masks: list[Tensor] | None) -> Tensor:
    """Windows (B, N, h, w, D) for each token, 0 outside: (B * h, 1, W * N, D), or (B * h, p, W * N, D) with masks."""
    batch, heads, rows, columns, head_dim = windows.shape
    windows = windows.permute(0, 2, 3, 1, 4)[:, :, :, None].expand(-1, -1, -1, pool, -1, -1)
    if masks is not None:
        windows = windows * masks[1].view(batch, 1, columns, pool, 1, 1)
    windows = windows.reshape(batch * rows, 1, columns * pool * heads, head_dim)
    return windows if masks is None else windows * masks[0].reshape(batch * rows, pool, 1, 1)


def _share(own: Tensor, logit: Tensor, inside: Tensor | None) -> Tensor:
    """A statistic of tokens (B, H, W) times each head's lambda, or 1 outside: (B, N, H, W)."""
    ratio = _of_head(sigmoid(logit), 4)
    return own[:, None] * (ratio if inside is None else inside * ratio + (1 - inside))


def _of_head(ratio: Tensor, ndim: int) -> Tensor:
    """(N,) -> (N, 1, ..., 1) that broadcasts to tensors of `ndim` axes with the heads in the second."""
    return ratio.view(-1, *[1] * (ndim - 2))


def _leading(count: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """1 in the leading positions of each image and 0 after them, (B,) -> (B, size)."""
    return (torch.arange(size, device=count.device) < count[:, None]).to(dtype)
