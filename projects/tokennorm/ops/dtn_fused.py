"""DTN with a hand-made gradient, for float32 and half-precision tokens on a CPU.

The same arithmetic as the plain form in `tokennorm.ops.dtn`, with P applied by `tokennorm.ops.positional`. It keeps its
inputs and each token's mean and variance for the backward pass, as LayerNorm does, and computes the inter-token
statistics there again unless they are few. The work goes strip by strip: a few images, or some rows of one and the rows
around them that P reaches, so that all maps in between are small, stay in the cache and are written in place.

Letters of the shapes: B batch, H x W grid, C channels, N heads, h x w the grid averaged over pool x pool tokens.
Statistics and gradients are float32.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tokennorm.ops.cells import average, blocks, spread, sum_cells, tokens_a_cell
from tokennorm.ops.positional import BandedWeights, DenseWeights, positional_weights

# Bytes of float32 tokens in a strip: small enough for the caches, large enough to be worth the calls. A backward pass
# holds a dozen such maps, and half of that where most of them are averaged.
_STRIP_BYTES = 2 * 2**20

# From this pool on they are small enough to be kept for the backward pass.
_KEEP_FROM_POOL = 4


class FusedDTN(torch.autograd.Function):
    """Algorithm 1. Arguments as in `tokennorm.ops.dtn.dtn`, except lambda itself, (N,), in place of its logits, and all
    parameters in float32. Returns the dtype of x. Differentiable once."""

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean_ratio: Tensor,
        var_ratio: Tensor,
        position: Tensor,
        eps: float,
        pool: int,
        valid: Tensor | None,
    ) -> Tensor:
        # Its result is the place for ours, and what tokens outside `valid` get.
        y, mean, rstd = torch.native_layer_norm(x, weight.shape, weight, bias, eps)
        var = rstd.square().reciprocal_().sub_(eps).clamp_(min=0)
        params = _Parameters.of(weight, bias, mean_ratio, var_ratio, position, eps, pool)
        strips = list(_strips(x, params, valid))
        kept = []
        for strip in strips:
            kept.extend(_normalize(strip, x, mean, var, params, y))
        ctx.save_for_backward(x, mean, var, weight, bias, mean_ratio, var_ratio, position, *kept)
        ctx.params, ctx.valid, ctx.strips = params, valid, strips
        return y

    @staticmethod
    def backward(ctx, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the arguments of `forward`, None for those that have none. torch calls it."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                'DTN in float32 and below is differentiable once on a CPU: for create_graph=True use '
                'float64 or tokennorm.ops.dtn.plain_dtn'
            )
        # Parameters are saved for torch to notice writes to them. Asked for once: recomputed blocks allow no more.
        x, mean, var, _, _, _, _, _, *kept = ctx.saved_tensors
        kept = iter(kept)
        params = ctx.params
        grads = _Gradients.of(x, params, written_once=ctx.valid is None and all(strip.is_whole for strip in ctx.strips))
        if ctx.valid is not None:
            _layer_norm_backward_outside(ctx.strips, x, mean, var, params, grad_y, grads)
        for strip in ctx.strips:
            stats = None
            if params.pool >= _KEEP_FROM_POOL:
                stats = _InterTokenStats(*(next(kept) for _ in _InterTokenStats._fields))
            _normalize_backward(strip, x, mean, var, stats, params, grad_y, grads)
        num_heads = len(params.position)
        ratios = (
            (ratio * params.weight).view(num_heads, -1).sum(dim=1) for ratio in (grads.mean_ratio, grads.var_ratio)
        )
        return grads.x.to(x.dtype), grads.weight, grads.bias, *ratios, grads.position, None, None, None


class _Parameters(NamedTuple):
    """What the arithmetic below needs. All but `position` (N, 3), `eps` and `pool` are a channel's, (C,).

    The shares are those of the inter-token statistics, 1 - lambda.
    """

    weight: Tensor
    bias: Tensor
    mean_ratio: Tensor
    var_ratio: Tensor
    mean_share: Tensor
    var_share: Tensor
    position: Tensor
    eps: Tensor
    pool: int

    @classmethod
    def of(cls, weight, bias, mean_ratio, var_ratio, position, eps, pool) -> '_Parameters':
        head_dim = len(weight) // len(position)
        mean_ratio, var_ratio = (ratio.repeat_interleave(head_dim) for ratio in (mean_ratio, var_ratio))
        eps = weight.new_tensor(eps)
        return cls(weight, bias, mean_ratio, var_ratio, 1 - mean_ratio, 1 - var_ratio, position, eps, pool)


class _Gradients(NamedTuple):
    """Sums over the strips. Those of the ratios are a channel's, (C,), and lack the factor `weight`."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    mean_ratio: Tensor
    var_ratio: Tensor
    position: Tensor

    @classmethod
    def of(cls, x: Tensor, params: _Parameters, written_once: bool) -> '_Gradients':
        """`written_once`: every token is in one strip and its window alone, so that its gradient needs no zero."""
        grad_x = torch.empty(x.shape) if written_once else torch.zeros(x.shape)
        return cls(grad_x, *torch.zeros(4, x.shape[-1]).unbind(), torch.zeros_like(params.position))


class _Strip(NamedTuple):
    """Tokens that are normalized together.

    Attributes:
        tokens: Their index into (B, H, W, C).
        window: That of those whose statistics they need: the same and, cut by cut, the rows that P reaches.
        cells: The tokens' rows among those of the averaged window.
        p: P of the averaged window.
    """

    tokens: tuple[slice, slice, slice]
    window: tuple[slice, slice, slice]
    cells: slice
    p: BandedWeights | DenseWeights

    @property
    def is_whole(self) -> bool:
        """Its tokens need no others."""
        return self.tokens == self.window


def _strips(x: Tensor, params: _Parameters, valid: Tensor | None) -> Iterator[_Strip]:
    """The strips of tokens (B, H, W, C); those outside `valid` (B, 2) are in none."""
    batch, height, width, channels = x.shape
    pool = params.pool
    strip_bytes = _STRIP_BYTES if pool == 1 else 2 * _STRIP_BYTES
    num_strips = -(-4 * x.numel() // strip_bytes)
    images_a_strip = -(-batch // num_strips)  # strips of like size
    if valid is None:
        areas = [(slice(i, i + images_a_strip), height, width) for i in range(0, batch, images_a_strip)]
    else:
        sizes = [(min(max(h, 1), height), min(max(w, 1), width)) for h, w in valid.tolist()]
        areas = [(slice(i, i + 1), *size) for i, size in enumerate(sizes)]
    known = {}
    for images, height, width in areas:
        rows, columns = -(-height // pool), -(-width // pool)  # of averaged cells
        if (rows, columns) not in known:
            known[rows, columns] = positional_weights(params.position, rows, columns)
        p = known[rows, columns]
        step = rows
        if p.halo is not None:
            step = max(strip_bytes // (4 * pool * width * channels), 2 * p.halo, 1)
            step = -(-rows // -(-rows // step))  # again of like size
        for start in range(0, rows, step):
            if step >= rows:
                low, stop, high, p_window = 0, rows, rows, p
            else:
                stop = min(start + step, rows)
                low, high = max(start - p.halo, 0), min(stop + p.halo, rows)
                p_window = p.rows(low, high)
            yield _Strip(
                (images, slice(start * pool, min(stop * pool, height)), slice(width)),
                (images, slice(low * pool, min(high * pool, height)), slice(width)),
                slice(start - low, stop - low),
                p_window,
            )


class _InterTokenStats(NamedTuple):
    """P x and P (x * x) - (P x) * (P x) of averaged tokens.

    Each channel is shifted by its mean over the window, which keeps the digits of the difference.

    Attributes:
        shift: (B, 1, 1, C).
        moments: Of x - shift, (2, B, h, w, C).
        mean, var: P (x - shift) and the variance for the strip's cells.
        half: What `p.backward` wants besides the moments.
    """

    shift: Tensor
    moments: Tensor
    mean: Tensor
    var: Tensor
    half: Tensor | None


def _inter_token_stats(strip: _Strip, x: Tensor, params: _Parameters) -> _InterTokenStats:
    x = average(x[strip.window].float(), params.pool)
    shift = x.mean(dim=(1, 2), keepdim=True)
    moments = x.new_empty(2, *x.shape)
    torch.sub(x, shift, out=moments[0])
    torch.mul(moments[0], moments[0], out=moments[1])
    product, half = strip.p.apply(moments.flatten(0, 1))
    mean, var = product.view(moments.shape)[:, :, strip.cells]
    var.sub_(mean * mean).clamp_(min=0)  # addcmul_ would round the product once less than the square, and not cancel
    return _InterTokenStats(shift, moments, mean, var, half)


def _normalize(
    strip: _Strip, x: Tensor, mean: Tensor, var: Tensor, params: _Parameters, y: Tensor
) -> tuple[Tensor | None, ...]:
    """Lines 9 to 13 of Algorithm 1 for the strip's tokens, into y. `mean`, `var`: the tokens' own, (B, H, W, 1).

    Returns:
        The inter-token statistics where they are to be kept, else nothing.
    """
    stats = _inter_token_stats(strip, x, params)
    shift, inter_mean, inter_var = stats.shift, stats.mean, stats.var
    stats = stats if params.pool >= _KEEP_FROM_POOL else ()  # frees the rest
    x, mean, var, y = (t[strip.tokens] for t in (x, mean, var, y))
    out = y if y.dtype == torch.float32 else torch.empty(y.shape)
    scale = _mixed_var(var, inter_var, params).rsqrt_()
    _subtract_mixed_mean(x.float(), mean, shift, inter_mean, params, out)
    out.mul_(scale)
    torch.addcmul(params.bias, out, params.weight, out=out)
    if out is not y:
        y.copy_(out)
    return stats


def _normalize_backward(
    strip: _Strip,
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    stats: _InterTokenStats | None,
    params: _Parameters,
    grad_y: Tensor,
    grads: _Gradients,
) -> None:
    """Gradients of `_normalize`, into `grads`; without `stats` they are computed again.

    With y = (x - mu) r weight + bias, where r = 1 / sqrt(v + eps), the arithmetic goes by

        e = grad_y r,            so that  d mu = -e weight,  and
        f = e (x - mu) r^2,      so that  d v = -1/2 f weight.
    """
    shift, moments, inter_mean, inter_var, half = stats or _inter_token_stats(strip, x, params)
    grad_window = grads.x[strip.window]
    x, mean, var, grad_y, grad_x = (t[strip.tokens] for t in (x, mean, var, grad_y, grads.x))
    x, grad_y = x.float(), grad_y.float()
    channels = x.shape[-1]
    mixed_var = _mixed_var(var, inter_var, params)
    e = mixed_var.rsqrt().mul_(grad_y)
    grads.bias.add_(_sum_tokens(grad_y))
    f = torch.empty_like(mixed_var)
    _subtract_mixed_mean(x, mean, shift, inter_mean, params, f)
    f.mul_(e)
    grads.weight.add_(_sum_tokens(f))
    f.div_(mixed_var)
    del mixed_var

    # Through the tokens' own mean and variance: slope * x - level.
    slope = (f @ (params.var_ratio * params.weight * (-1 / channels))).unsqueeze(-1)
    level = (e @ (params.mean_ratio * params.weight * (1 / channels))).unsqueeze(-1).addcmul_(mean, slope)

    # Through the ratios. Means are taken relative to a level of the image, so that a large offset cancels nothing.
    offset = shift.mean(dim=-1, keepdim=True)
    grads.mean_ratio.sub_((mean - offset).flatten() @ e.flatten(0, 2))
    grads.var_ratio.sub_(var.flatten() @ f.flatten(0, 2), alpha=0.5)
    e_cells, f_cells = sum_cells(e, params.pool), sum_cells(f, params.pool)
    e_mean, f_var = e_cells * inter_mean, f_cells * inter_var
    grads.mean_ratio.add_(_sum_tokens(e_mean))
    grads.mean_ratio.add_((e_cells.sum(dim=(1, 2)) * (shift - offset)[:, 0, 0]).sum(dim=0))
    grads.var_ratio.add_(_sum_tokens(f_var), alpha=0.5)

    # Through the inter-token statistics. The variance is S - M^2 with M and S the two products of P, and `dots` the sum
    # of each times its gradient.
    e_share, f_share = -params.weight * params.mean_share, -0.5 * params.weight * params.var_share
    dots = e_mean.mul_(e_share).addcmul_(f_var, f_share)
    del f_var
    grad_moments = torch.empty_like(moments) if strip.is_whole else torch.zeros_like(moments)
    grad_first, grad_second = grad_moments[:, :, strip.cells]
    torch.mul(f_cells, f_share, out=grad_second)
    cross = grad_second * inter_mean
    torch.mul(e_cells, e_share, out=grad_first).sub_(cross, alpha=2)
    dots = _sum_heads(dots.addcmul_(cross, inter_mean, value=-1), len(params.position))
    if not strip.is_whole:
        dots = F.pad(dots, (0, 0, strip.cells.start, moments.shape[2] - strip.cells.stop))
    del f, e_cells, f_cells, e_mean, cross, inter_mean, inter_var
    grad_moments, grad_position = strip.p.backward(moments.flatten(0, 1), half, grad_moments.flatten(0, 1), dots)
    grads.position.add_(grad_position)
    grad_first, grad_second = grad_moments.view(moments.shape)
    grad_cells = grad_first.addcmul_(moments[0], grad_second, value=2)
    if params.pool > 1:
        grad_cells /= tokens_a_cell(grad_window, params.pool)
    grad_cells = spread(grad_cells, params.pool, grad_window)

    if strip.is_whole:
        torch.addcmul(grad_cells, blocks(e, params.pool), params.weight, out=blocks(grad_x, params.pool))
    else:
        blocks(grad_window, params.pool).add_(grad_cells)
        grad_x.addcmul_(e, params.weight)
    grad_x.addcmul_(x, slope).sub_(level)


def _layer_norm_backward_outside(
    strips: list[_Strip],
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    params: _Parameters,
    grad_y: Tensor,
    grads: _Gradients,
) -> None:
    """Gradients through the tokens that are in no strip, added to `grads`."""
    outside = grad_y.clone()
    for strip in strips:
        outside[strip.tokens] = 0
    through_x, through_weight, through_bias = torch.ops.aten.native_layer_norm_backward(
        outside,
        x,
        params.weight.shape,
        mean,
        (var + params.eps).rsqrt_(),
        params.weight,
        params.bias,
        output_mask=(True, True, True),
    )
    grads.x.add_(through_x)
    grads.weight.add_(through_weight)
    grads.bias.add_(through_bias)


def _subtract_mixed_mean(
    x: Tensor, mean: Tensor, shift: Tensor, inter_mean: Tensor, params: _Parameters, out: Tensor
) -> None:
    """x - mu with mu = lambda mean + (1 - lambda) (inter_mean + shift), into `out`."""
    inter_mean = torch.addcmul(shift * params.mean_share, inter_mean, params.mean_share)
    torch.addcmul(x, mean, params.mean_ratio, value=-1, out=out)
    blocks(out, params.pool).sub_(spread(inter_mean, params.pool, x))


def _mixed_var(var: Tensor, inter_var: Tensor, params: _Parameters) -> Tensor:
    """v + eps with v = lambda var + (1 - lambda) inter_var, (B, H, W, C)."""
    inter_var = torch.addcmul(params.eps, inter_var, params.var_share)
    mixed = torch.addcmul(spread(inter_var, params.pool, var), blocks(var, params.pool), params.var_ratio)
    return mixed.view(*var.shape[:3], -1)


def _sum_tokens(x: Tensor) -> Tensor:
    """(B, H, W, C) -> (C,)."""
    return x.sum(dim=(0, 1, 2))


def _sum_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, H, W, C) -> (N, H, W)."""
    return x.sum(dim=0).unflatten(-1, (num_heads, -1)).sum(dim=-1).permute(2, 0, 1)
