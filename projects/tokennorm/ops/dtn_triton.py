"""Dynamic Token Normalization in Triton, forward and backward: `dtn` of the paper's form on a GPU.

The kernels are in `dtn_kernels`. The forward pass has three launches:

1. each token's mean and variance, each channel's shift, each axis' softmax denominators and bands;
2. moments along x;
3. moments along y and the output.

The backward pass keeps x and, in float32, 2 numbers per token, C per image and 7 per head and position on an axis. It
computes the moments again. Sums over programs are tensors of partial sums, added in a fixed order: the same input gives
the same bits.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokennorm.ops.dtn_kernels import along, normalize, prepare


def dtn_triton(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean_logit: Tensor | None,
    var_logit: Tensor,
    position: Tensor,
    eps: float = 1e-5,
    pool: int = 1,
    valid: Tensor | None = None,
) -> Tensor:
    """Algorithm 1 of the paper; arguments and result as in `tokennorm.ops.dtn.dtn`. Ask `can_use` first."""
    out_dtype = torch.float32 if x.is_cuda and torch.is_autocast_enabled('cuda') else x.dtype
    return _DTN.apply(x, weight, bias, mean_logit, var_logit, position, valid, eps, pool, out_dtype)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _blocks(n: int, size: int) -> int:
    return -(-n // size)


def _tile(block_d: int, length: int) -> dict[str, int]:
    """A program's part of an axis: positions (at least 16, for tensor cores), channels, and the warps for them."""
    block_i, num_warps = (32, 8) if length > 16 else (16, 4)
    return dict(BLOCK_D=block_d, BLOCK_I=block_i, BLOCK_K=16, num_warps=num_warps)


class _Shapes:
    """The numbers that every launch needs."""

    def __init__(self, x: Tensor, position: Tensor, valid: Tensor | None, pool: int) -> None:
        self.B, self.H, self.W, self.C = x.shape
        self.N = position.shape[0]
        self.h, self.w = _blocks(self.H, pool), _blocks(self.W, pool)
        head_dim = self.C // self.N
        self.block_d = min(max(_power_of_two(head_dim), 16), 64)
        self.chunks = self.N * _blocks(head_dim, self.block_d)
        self.tables = self.B if valid is not None else 1
        self.plane = self.tables * self.N * (self.h + self.w)
        self.sizes = (self.B, self.H, self.W, self.plane)
        self.constants = dict(C=self.C, N=self.N, POOL=pool, HAS_VALID=valid is not None)
        self.tile_x, self.tile_y = (_tile(self.block_d, length) for length in (self.w, self.h))
        self.programs_x = self.B * self.h * _blocks(self.w, self.tile_x['BLOCK_I']) * self.chunks
        self.programs_y = self.B * self.w * _blocks(self.h, self.tile_y['BLOCK_I']) * self.chunks


def _prepare(x: Tensor, position: Tensor, valid: Tensor | None, s: _Shapes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tokens' statistics, the axes' tables and the channels' shifts: intra, shift, rows, bands."""
    intra = x.new_empty(2, s.B, s.H, s.W, dtype=torch.float32)
    shift = x.new_empty(s.B, s.C, dtype=torch.float32)
    rows = x.new_empty(3, s.tables, s.N, s.w + s.h, dtype=torch.float32)
    bands = x.new_empty(4, s.tables, s.N, s.w + s.h, dtype=torch.int32)
    block_c, block_s = _power_of_two(s.C), 32
    block_t = max(4096 // block_c, 1)
    programs = (
        _blocks(s.B * s.H * s.W, block_t)
        + s.tables * s.N * (_blocks(s.w, block_s) + _blocks(s.h, block_s))
        + s.B * _blocks(s.C, block_s)
    )
    prepare.prepare_kernel[(programs,)](
        x, position, valid,
        intra, rows, bands, shift,
        *s.sizes, **s.constants, BLOCK_T=block_t, BLOCK_C=block_c, BLOCK_S=block_s,
    )  # fmt: skip
    return intra, shift, rows, bands


def _pooled(x: Tensor, valid: Tensor | None, shift: Tensor, pool: int, s: _Shapes) -> Tensor:
    """Pooled tokens: the tokens themselves, or the means of pool x pool windows minus the shift."""
    if pool == 1:
        return x
    pooled = x.new_empty(s.B, s.h, s.w, s.C, dtype=torch.float32)
    block_c = _power_of_two(s.C)
    block_i = max(4096 // block_c, 1)
    programs = s.B * s.h * _blocks(s.w, block_i)
    prepare.pool_kernel[(programs,)](
        x, valid, shift,
        pooled,
        s.H, s.W, C=s.C, POOL=pool, HAS_VALID=valid is not None, BLOCK_I=block_i, BLOCK_C=block_c,
    )  # fmt: skip
    return pooled


def _moments_along_x(
    pooled: Tensor, position: Tensor, valid: Tensor | None, shift: Tensor, rows: Tensor, bands: Tensor, s: _Shapes
) -> Tensor:
    moments = pooled.new_empty(2, s.B, s.h, s.w, s.C, dtype=torch.float32)
    along.along_x_kernel[(s.programs_x,)](
        pooled, shift, position, valid, rows, bands, moments, *s.sizes, **s.constants, **s.tile_x
    )
    return moments


class _DTN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, mean_logit, var_logit, position, valid, eps, pool, out_dtype):
        x, weight, bias, var_logit, position = (t.contiguous() for t in (x, weight, bias, var_logit, position))
        mean_logit = mean_logit.contiguous() if mean_logit is not None else None
        valid = valid.contiguous() if valid is not None else None
        s = _Shapes(x, position, valid, pool)
        y = torch.empty_like(x, dtype=out_dtype)
        with torch.cuda.device_of(x):
            intra, shift, rows, bands = _prepare(x, position, valid, s)
            pooled = _pooled(x, valid, shift, pool, s)
            moments = _moments_along_x(pooled, position, valid, shift, rows, bands, s)
            normalize.normalize_kernel[(s.programs_y,)](
                x, weight, bias, mean_logit, var_logit, position, valid,
                intra, shift, rows, bands, moments,
                y,
                *s.sizes, eps, **s.constants, **s.tile_y, HAS_MEAN=mean_logit is not None,
            )  # fmt: skip
        ctx.save_for_backward(x, weight, bias, mean_logit, var_logit, position, valid, intra, shift, rows, bands)
        ctx.eps, ctx.pool = eps, pool
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        """The gradients of the arguments of `forward`, None for those that have none. torch calls it."""
        x, weight, bias, mean_logit, var_logit, position, valid, intra, shift, rows, bands = ctx.saved_tensors
        s = _Shapes(x, position, valid, ctx.pool)
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        gradients = [torch.empty_like(t) if t is not None else None for t in (weight, bias, mean_logit, var_logit)]
        gradients.append(torch.empty_like(position))
        direct = torch.empty_like(x, dtype=torch.float32)
        token_sums = x.new_empty(2, s.B, s.H, s.W, s.chunks, dtype=torch.float32)
        partial_y = x.new_empty(s.programs_y // s.chunks, s.chunks, 2 * s.block_d + 4, dtype=torch.float32)
        partial_x = x.new_empty(s.programs_x // s.chunks, s.chunks, 2, dtype=torch.float32)
        with torch.cuda.device_of(x):
            pooled = _pooled(x, valid, shift, ctx.pool, s)
            moments = _moments_along_x(pooled, position, valid, shift, rows, bands, s)
            grads = torch.empty_like(moments)
            normalize.normalize_backward_kernel[(s.programs_y,)](
                x, dy, weight, mean_logit, var_logit, position, valid,
                intra, shift, rows, bands, moments,
                grads, direct, token_sums, partial_y,
                *s.sizes, ctx.eps, **s.constants, **s.tile_y, HAS_MEAN=mean_logit is not None,
            )  # fmt: skip
            along.back_along_y_kernel[(s.programs_y,)](
                grads, position, valid, rows, bands, moments, *s.sizes, **s.constants, **s.tile_y
            )
            along.back_along_x_kernel[(s.programs_x,)](
                x, pooled, position, valid, intra, shift, rows, bands,
                moments, direct, token_sums,
                dx, partial_x,
                *s.sizes, **s.constants, **s.tile_x, BLOCK_G=_power_of_two(s.chunks),
            )  # fmt: skip
            normalize.parameters_kernel[(s.N,)](
                partial_y.sum(dim=0), partial_x.sum(dim=0),
                *gradients,
                C=s.C, N=s.N, HAS_MEAN=mean_logit is not None, BLOCK_D=s.block_d,
            )  # fmt: skip
        return dx, *gradients, None, None, None, None
