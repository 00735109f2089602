"""DTN with a hand-made gradient, for float32 and half-precision tokens on a CPU.

The same arithmetic as the plain form in `tokennorm.ops.dtn`, with P applied by `tokennorm.ops.positional` and maps written
in place wherever they are ours. It keeps its inputs and each token's mean and variance for the backward pass, as
LayerNorm does, and computes the inter-token statistics there again. Statistics and gradients are float32.

Letters of the shapes: B batch, H x W grid, C channels, N heads, h x w the grid averaged over pool x pool tokens.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokennorm.ops.positional import BandedWeights, DenseWeights, new_pair, positional_weights, split_pair

# A batch of more bytes goes image by image: the maps in between then stay near the cache and out of the peak memory.
_MAX_BATCH_BYTES = 8 * 2**20


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
        tokens = x.float().contiguous()
        # Its result is the place for ours, and what tokens outside `valid` get.
        y, mean, rstd = torch.native_layer_norm(tokens, weight.shape, weight, bias, eps)
        var = rstd.square().reciprocal_().sub_(eps).clamp_(min=0)
        params = _Parameters.of(weight, bias, mean_ratio, var_ratio, position, eps, pool)
        for region, p in _regions(tokens, params, valid):
            _normalize(tokens[region], mean[region], var[region], p, params, y[region])
        ctx.save_for_backward(x, mean, var, weight, bias, mean_ratio, var_ratio, position)
        ctx.eps, ctx.pool, ctx.valid = eps, pool, valid
        return y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, var, *parameters = ctx.saved_tensors
        params = _Parameters.of(*parameters, ctx.eps, ctx.pool)
        tokens, grad_y = x.float().contiguous(), grad_y.float().contiguous()
        grad_x = torch.empty_like(tokens)
        grads = _Parameters(*(torch.zeros_like(p) for p in params[:5]), ctx.eps, ctx.pool)
        regions = list(_regions(tokens, params, ctx.valid))
        if ctx.valid is not None:
            outside = grad_y.clone()
            for region, _ in regions:
                outside[region] = 0
            rstd = (var + ctx.eps).rsqrt_()
            grad_x, grad_weight, grad_bias = torch.ops.aten.native_layer_norm_backward(
                outside, tokens, params.weight.shape, mean, rstd, params.weight, params.bias, (True, True, True)
            )
            grads.weight.add_(grad_weight)
            grads.bias.add_(grad_bias)
        for region, p in regions:
            _normalize_backward(
                tokens[region], mean[region], var[region], grad_y[region], p, params, grad_x[region], grads
            )
        num_heads = len(grads.position)
        return (
            grad_x.to(x.dtype),
            grads.weight,
            grads.bias,
            grads.mean_ratio.view(num_heads, -1).sum(dim=1),
            grads.var_ratio.view(num_heads, -1).sum(dim=1),
            grads.position,
            None,
            None,
            None,
        )


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


def _regions(tokens: Tensor, params: _Parameters, valid: Tensor | None):
    """Index of (B, H, W, C) and P for each part that is normalized on its own: the batch, an image, or its valid part."""
    batch, height, width = tokens.shape[:3]
    if valid is not None:
        sizes = [(min(max(h, 1), height), min(max(w, 1), width)) for h, w in valid.tolist()]
    elif tokens.numel() * tokens.element_size() > _MAX_BATCH_BYTES:
        sizes = [(height, width)] * batch
    else:
        yield (), _weights(height, width, params)
        return
    known = {}
    for image, size in enumerate(sizes):
        if size not in known:
            known[size] = _weights(*size, params)
        yield (slice(image, image + 1), slice(size[0]), slice(size[1])), known[size]


def _weights(height: int, width: int, params: _Parameters) -> BandedWeights | DenseWeights:
    return positional_weights(params.position, -(-height // params.pool), -(-width // params.pool))


def _normalize(
    x: Tensor, mean: Tensor, var: Tensor, p: BandedWeights | DenseWeights, params: _Parameters, out: Tensor
) -> None:
    """Lines 9 to 13 of Algorithm 1 for tokens (B, H, W, C) with their own mean and variance (B, H, W, 1)."""
    shift, _, inter_mean, inter_var, _ = _inter_token_stats(_average(x, params.pool), p)
    scale = _mixed_scale(var, inter_var, params, x.shape)
    _subtract_mixed_mean(x, mean, shift, inter_mean, params, out)
    out.mul_(scale)
    torch.addcmul(params.bias, out, params.weight, out=out)


def _normalize_backward(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    grad_y: Tensor,
    p: BandedWeights | DenseWeights,
    params: _Parameters,
    grad_x: Tensor,
    grads: _Parameters,
) -> None:
    """Gradients of `_normalize`: writes that of x into `grad_x` and adds those of the parameters to `grads`.

    With z = (x - mu) r, the normalized tokens: d mu = -grad_y weight r, d v = -1/2 grad_y weight z r^2.
    """
    channels = x.shape[-1]
    cells = _average(x, params.pool)
    shift, moments, inter_mean, inter_var, half = _inter_token_stats(cells, p)
    scale = _mixed_scale(var, inter_var, params, x.shape)
    normalized = torch.empty_like(scale)
    _subtract_mixed_mean(x, mean, shift, inter_mean, params, normalized)
    normalized.mul_(scale)
    grads.bias.add_(_sum_tokens(grad_y))
    grad_var = normalized.mul_(grad_y)
    grads.weight.add_(_sum_tokens(grad_var))
    grad_var.mul_(scale).mul_(scale).mul_(-0.5 * params.weight)
    minus_grad_mean = scale.mul_(grad_y).mul_(params.weight)

    # Through the tokens themselves, and their own mean and variance.
    grad_own_mean = (minus_grad_mean @ params.mean_ratio).unsqueeze(-1).div_(channels)
    grad_own_var = (grad_var @ params.var_ratio).unsqueeze(-1).mul_(2 / channels)
    torch.sub(x, mean, out=grad_x)
    grad_x.mul_(grad_own_var).sub_(grad_own_mean).add_(minus_grad_mean)

    # Through the ratios. Means are taken relative to a level of the image, so that a large offset cancels nothing.
    level = shift.mean(dim=-1, keepdim=True)
    grads.mean_ratio.sub_((mean - level).flatten() @ minus_grad_mean.flatten(0, 2))
    grads.var_ratio.add_(var.flatten() @ grad_var.flatten(0, 2))

    # Through the inter-token statistics, on the averaged grid from here on.
    minus_grad_mean, grad_var = _sum_cells(minus_grad_mean, params.pool), _sum_cells(grad_var, params.pool)
    grads.mean_ratio.add_((minus_grad_mean.sum(dim=(1, 2)) * (shift - level)[:, 0, 0]).sum(dim=0))
    grad_pair = new_pair(inter_mean)
    grad_first, grad_second = split_pair(grad_pair)
    torch.mul(minus_grad_mean, inter_mean, out=grad_first)
    torch.mul(grad_var, inter_var, out=grad_second)
    grads.mean_ratio.add_(_sum_tokens(grad_first))
    grads.var_ratio.sub_(_sum_tokens(grad_second))
    # The variance is the second product minus the square of the first, hence the gradients of the two products, and
    # `dots`, the sum of each times its product: -(1 - lambda) h M + (1 - lambda) dv (V - M^2).
    mean_share, var_share = 1 - params.mean_ratio, 1 - params.var_ratio
    dots = grad_second.mul_(var_share).addcmul_(grad_first, mean_share, value=-1)
    torch.mul(grad_var, var_share, out=grad_var)
    cross = torch.mul(grad_var, inter_mean, out=grad_first)
    dots = dots.addcmul(cross, inter_mean, value=-1)
    torch.add(minus_grad_mean.mul_(-mean_share), cross, alpha=-2, out=grad_first)
    grad_second.copy_(grad_var)
    del minus_grad_mean, grad_var, inter_mean, inter_var, cross, normalized, scale
    grad_pair, grad_position = p.backward(moments, half, grad_pair, dots)
    grads.position.add_(grad_position)
    grad_first, grad_second = split_pair(grad_pair)
    grad_cells = grad_first.addcmul_(split_pair(moments)[0], grad_second, value=2)
    if params.pool > 1:
        grad_cells = grad_cells / _tokens_a_cell(x, params.pool)
    _blocks(grad_x, params.pool).add_(_spread(grad_cells, params.pool, x))


def _inter_token_stats(x: Tensor, p: BandedWeights | DenseWeights) -> tuple:
    """P x and P (x * x) - (P x) * (P x) of averaged tokens x (B, h, w, C).

    Each channel is shifted by its mean over the grid, which keeps the digits of the difference.

    Returns:
        The shift (B, 1, 1, C), the pair of moments of x - shift, P (x - shift), the variance, and what `p.backward`
        wants besides the pair.
    """
    shift = x.flatten(1, 2).mean(dim=1)[:, None, None]
    moments = new_pair(x)
    shifted, square = split_pair(moments)
    torch.sub(x, shift, out=shifted)
    torch.mul(shifted, shifted, out=square)
    product, half = p.apply(moments)
    mean, var = split_pair(product)
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


def _mixed_scale(var: Tensor, inter_var: Tensor, params: _Parameters, shape: torch.Size) -> Tensor:
    """r = 1 / sqrt(lambda var + (1 - lambda) inter_var + eps) of tokens of `shape` (B, H, W, C)."""
    inter_var = torch.addcmul(params.var_ratio.new_tensor(params.eps), inter_var, 1 - params.var_ratio)
    scale = torch.addcmul(_spread(inter_var, params.pool, var), _blocks(var, params.pool), params.var_ratio)
    return scale.rsqrt_().view(shape)


def _sum_tokens(x: Tensor) -> Tensor:
    """(B, H, W, C) -> (C,)."""
    return x.sum(dim=(0, 1, 2))


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
