"""DTN with a hand-made gradient, for float32 and half-precision tokens on a CPU.

The same arithmetic as the plain form in `tokennorm.ops.dtn`, with P applied by `tokennorm.ops.positional`. It keeps its
inputs and each token's mean and variance for the backward pass, as LayerNorm does, and computes the inter-token
statistics there again. The work goes strip by strip: a few images, or some rows of one and the rows around them that P
reaches, so that all maps in between are small, stay in the cache and are written in place.

Letters of the shapes: B batch, H x W grid, C channels, N heads, h x w the grid averaged over pool x pool tokens.
Statistics and gradients are float32.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tokennorm.ops.positional import BandedWeights, DenseWeights, positional_weights

# Bytes of float32 tokens in a strip: small enough for the caches, large enough to be worth the calls.
_STRIP_BYTES = 4 * 2**20


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
        for strip in _strips(x, params, valid):
            _normalize(strip, x, mean, var, params, y)
        ctx.save_for_backward(x, mean, var, weight, bias, mean_ratio, var_ratio, position)
        ctx.eps, ctx.pool, ctx.valid = eps, pool, valid
        return y

    @staticmethod
    def backward(ctx, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                'DTN in float32 and below is differentiable once on a CPU: for create_graph=True use '
                'float64 or tokennorm.ops.dtn.plain_dtn'
            )
        x, mean, var, *parameters = ctx.saved_tensors
        params = _Parameters.of(*parameters, ctx.eps, ctx.pool)
        strips = list(_strips(x, params, ctx.valid))
        grads = _Parameters(*(torch.zeros_like(p) for p in params[:5]), ctx.eps, ctx.pool)
        grad_x = torch.zeros(x.shape)
        if ctx.valid is not None:
            _layer_norm_backward_outside(strips, x, mean, var, params, grad_y, grad_x, grads)
        for strip in strips:
            _normalize_backward(strip, x, mean, var, params, grad_y, grad_x, grads)
        num_heads = len(grads.position)
        ratios = (ratio.view(num_heads, -1).sum(dim=1) for ratio in (grads.mean_ratio, grads.var_ratio))
        return grad_x.to(x.dtype), grads.weight, grads.bias, *ratios, grads.position, None, None, None


class _Parameters(NamedTuple):
    """What the arithmetic below needs, or the gradients of that; the ratios are a channel's here, (C,)."""

    weight: Tensor
    bias: Tensor
    mean_ratio: Tensor
    var_ratio: Tensor
    position: Tensor
    eps: float
    pool: int

    @classmethod
    def of(cls, weight, bias, mean_ratio, var_ratio, position, eps, pool) -> '_Parameters':
        head_dim = len(weight) // len(position)
        ratios = (ratio.repeat_interleave(head_dim) for ratio in (mean_ratio, var_ratio))
        return cls(weight, bias, *ratios, position, eps, pool)


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


def _strips(x: Tensor, params: _Parameters, valid: Tensor | None) -> Iterator[_Strip]:
    """The strips of tokens (B, H, W, C); those outside `valid` (B, 2) are in none."""
    batch, height, width, channels = x.shape
    pool = params.pool
    images_a_strip = max(1, _STRIP_BYTES // (4 * height * width * channels))
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
            step = max(_STRIP_BYTES // (4 * pool * width * channels) // pool, 2 * p.halo, 1)
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


def _normalize(strip: _Strip, x: Tensor, mean: Tensor, var: Tensor, params: _Parameters, y: Tensor) -> None:
    """Lines 9 to 13 of Algorithm 1 for the strip's tokens, into y. `mean`, `var`: the tokens' own, (B, H, W, 1)."""
    shift, _, inter_mean, inter_var, _ = _inter_token_stats(strip, x, params)
    x, mean, var, y = (t[strip.tokens] for t in (x, mean, var, y))
    out = y if y.dtype == torch.float32 else torch.empty(y.shape)
    scale = _mixed_scale(var, inter_var, params)
    _subtract_mixed_mean(x.float(), mean, shift, inter_mean, params, out)
    out.mul_(scale)
    torch.addcmul(params.bias, out, params.weight, out=out)
    if out is not y:
        y.copy_(out)


def _normalize_backward(
    strip: _Strip,
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    params: _Parameters,
    grad_y: Tensor,
    grad_x: Tensor,
    grads: _Parameters,
) -> None:
    """Gradients of `_normalize`, added to `grad_x` and `grads`.

    With z = (x - mu) r, the normalized tokens: d mu = -grad_y weight r and d v = -1/2 grad_y weight z r^2.
    """
    shift, moments, inter_mean, inter_var, half = _inter_token_stats(strip, x, params)
    grad_window = grad_x[strip.window]
    x, mean, var, grad_y, grad_x = (t[strip.tokens] for t in (x, mean, var, grad_y, grad_x))
    x, grad_y = x.float(), grad_y.float()
    scale = _mixed_scale(var, inter_var, params)
    normalized = torch.empty_like(scale)
    _subtract_mixed_mean(x, mean, shift, inter_mean, params, normalized)
    normalized.mul_(scale)
    grads.bias.add_(_sum_tokens(grad_y))
    grad_var = normalized.mul_(grad_y)
    grads.weight.add_(_sum_tokens(grad_var))
    grad_var.mul_(scale)
    scale.mul_(params.weight)
    grad_var.mul_(scale)  # -2 dv: the factor follows with the ratios
    minus_grad_mean = scale.mul_(grad_y)

    # Through the tokens themselves, and their own mean and variance.
    slope = (grad_var @ params.var_ratio).unsqueeze(-1).mul_(-1 / x.shape[-1])
    level = (minus_grad_mean @ params.mean_ratio).unsqueeze(-1).div_(x.shape[-1]).addcmul_(mean, slope)
    grad_x.add_(torch.addcmul(minus_grad_mean, x, slope).sub_(level))

    # Through the ratios. Means are taken relative to a level of the image, so that a large offset cancels nothing.
    level = shift.mean(dim=-1, keepdim=True)
    grads.mean_ratio.sub_((mean - level).flatten() @ minus_grad_mean.flatten(0, 2))
    grads.var_ratio.sub_(var.flatten() @ grad_var.flatten(0, 2), alpha=0.5)

    # Through the inter-token statistics, on the averaged grid from here on.
    minus_grad_mean, grad_var = _sum_cells(minus_grad_mean, params.pool), _sum_cells(grad_var, params.pool)
    mean_product, var_product = minus_grad_mean * inter_mean, grad_var * inter_var
    grads.mean_ratio.add_(_sum_tokens(mean_product))
    grads.mean_ratio.add_((minus_grad_mean.sum(dim=(1, 2)) * (shift - level)[:, 0, 0]).sum(dim=0))
    grads.var_ratio.add_(_sum_tokens(var_product), alpha=0.5)
    # The variance is S - M^2 with M and S the two products of P; `dots` is the sum of each times its gradient.
    mean_share, var_share = 1 - params.mean_ratio, -0.5 * (1 - params.var_ratio)
    grad_moments = torch.zeros_like(moments) if strip.tokens != strip.window else torch.empty_like(moments)
    grad_first, grad_second = grad_moments[:, :, strip.cells]
    torch.mul(grad_var, var_share, out=grad_second)
    cross = grad_second * inter_mean
    dots = var_product.mul_(var_share).addcmul_(mean_product, mean_share, value=-1)
    dots.addcmul_(cross, inter_mean, value=-1)
    torch.add(minus_grad_mean.mul_(-mean_share), cross, alpha=-2, out=grad_first)
    dots = _sum_heads(dots, len(params.position))
    dots = F.pad(dots, (0, 0, strip.cells.start, moments.shape[2] - strip.cells.stop))
    del scale, normalized, minus_grad_mean, grad_var, mean_product, var_product, cross, inter_mean, inter_var
    grad_moments, grad_position = strip.p.backward(moments.flatten(0, 1), half, grad_moments.flatten(0, 1), dots)
    grads.position.add_(grad_position)
    grad_first, grad_second = grad_moments.view(moments.shape)
    grad_cells = grad_first.addcmul_(moments[0], grad_second, value=2)
    if params.pool > 1:
        grad_cells /= _tokens_a_cell(grad_window, params.pool)
    _blocks(grad_window, params.pool).add_(_spread(grad_cells, params.pool, grad_window))


def _layer_norm_backward_outside(
    strips: list[_Strip],
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    params: _Parameters,
    grad_y: Tensor,
    grad_x: Tensor,
    grads: _Parameters,
) -> None:
    """Gradients through the tokens that are in no strip, added to `grad_x` and `grads`."""
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
    grad_x.add_(through_x)
    grads.weight.add_(through_weight)
    grads.bias.add_(through_bias)


def _inter_token_stats(strip: _Strip, x: Tensor, params: _Parameters) -> tuple[Tensor, ...]:
    """P x and P (x * x) - (P x) * (P x) of averaged tokens.

    Each channel is shifted by its mean over the window, which keeps the digits of the difference.

    Returns:
        The shift (B, 1, 1, C), the moments of x - shift (2, B, h, w, C), P (x - shift) and the variance for the strip's
        rows, and what `p.backward` wants besides the moments.
    """
    x = _average(x[strip.window].float(), params.pool)
    shift = x.flatten(1, 2).mean(dim=1)[:, None, None]
    moments = x.new_empty(2, *x.shape)
    torch.sub(x, shift, out=moments[0])
    torch.mul(moments[0], moments[0], out=moments[1])
    product, half = strip.p.apply(moments.flatten(0, 1))
    mean, var = product.view(moments.shape)[:, :, strip.cells]
    var.addcmul_(mean, mean, value=-1).clamp_(min=0)
    return shift, moments, mean, var, half


def _subtract_mixed_mean(
    x: Tensor, mean: Tensor, shift: Tensor, inter_mean: Tensor, params: _Parameters, out: Tensor
) -> None:
    """x - mu with mu = lambda mean + (1 - lambda) (inter_mean + shift), into `out`."""
    share = 1 - params.mean_ratio
    inter_mean = torch.addcmul(shift * share, inter_mean, share)
    torch.addcmul(x, mean, -params.mean_ratio, out=out)
    _blocks(out, params.pool).sub_(_spread(inter_mean, params.pool, x))


def _mixed_scale(var: Tensor, inter_var: Tensor, params: _Parameters) -> Tensor:
    """r = 1 / sqrt(lambda var + (1 - lambda) inter_var + eps), (B, H, W, C)."""
    inter_var = torch.addcmul(params.var_ratio.new_tensor(params.eps), inter_var, 1 - params.var_ratio)
    scale = torch.addcmul(_spread(inter_var, params.pool, var), _blocks(var, params.pool), params.var_ratio)
    return scale.rsqrt_().view(*var.shape[:3], -1)


def _sum_tokens(x: Tensor) -> Tensor:
    """(B, H, W, C) -> (C,)."""
    return x.sum(dim=(0, 1, 2))


def _sum_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, H, W, C) -> (N, H, W)."""
    return x.sum(dim=0).unflatten(-1, (num_heads, -1)).sum(dim=-1).permute(2, 0, 1)


def _average(x: Tensor, pool: int) -> Tensor:
    """Means over pool x pool cells, (B, H, W, C) -> (B, h, w, C). Partial cells average what they have."""
    if pool == 1:
        return x
    cells = F.avg_pool2d(x.permute(0, 3, 1, 2), pool, ceil_mode=True, count_include_pad=False)
    return cells.permute(0, 2, 3, 1).contiguous()


def _sum_cells(x: Tensor, pool: int) -> Tensor:
    """Sums over pool x pool cells, (B, H, W, C) -> (B, h, w, C)."""
    if pool == 1:
        return x
    cells = F.avg_pool2d(x.permute(0, 3, 1, 2), pool, ceil_mode=True, divisor_override=1)
    return cells.permute(0, 2, 3, 1).contiguous()


def _tokens_a_cell(x: Tensor, pool: int) -> Tensor:
    """How many tokens of (B, H, W, C) each cell has, (h, w, 1)."""
    rows, columns = (
        (size - pool * torch.arange(-(-size // pool), device=x.device)).clamp_(max=pool) for size in x.shape[1:3]
    )
    return (rows[:, None] * columns)[..., None]


def _blocks(x: Tensor, pool: int) -> Tensor:
    """(B, H, W, C) -> (B, h, pool, w, pool, C), a view, where pool divides the sides, else x itself."""
    if pool == 1 or x.shape[1] % pool or x.shape[2] % pool:
        return x
    return x.unflatten(2, (-1, pool)).unflatten(1, (-1, pool))


def _spread(cells: Tensor, pool: int, tokens: Tensor) -> Tensor:
    """Cells (B, h, w, C) in the shape that adds to `_blocks(tokens, pool)`: each repeated pool x pool times."""
    height, width = tokens.shape[1:3]
    if pool == 1:
        return cells
    if height % pool == 0 and width % pool == 0:
        return cells[:, :, None, :, None]
    cells = cells.repeat_interleave(pool, dim=1)[:, :height]
    return cells.repeat_interleave(pool, dim=2)[:, :, :width]
