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
import triton
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


def _tile(block_d: int, length: int) -> dict[str, int]:
    """A program's part of an axis: positions (at least 16, for tensor cores), channels, and the warps for them."""
    block_i, num_warps = (32, 8) if length > 16 else (16, 4)
    return dict(BLOCK_D=block_d, BLOCK_I=block_i, BLOCK_K=16, num_warps=num_warps)


class _Shapes:
    """The numbers that every launch needs."""

    def __init__(self, x: Tensor, position: Tensor, valid: Tensor | None, pool: int) -> None:
        self.B, self.H, self.W, self.C = x.shape
        self.pool = pool
        self.N = position.shape[0]
        self.h, self.w = triton.cdiv(self.H, pool), triton.cdiv(self.W, pool)
        head_dim = self.C // self.N
        self.block_d = min(max(triton.next_power_of_2(head_dim), 16), 64)
        self.chunks = self.N * triton.cdiv(head_dim, self.block_d)
        self.tables = self.B if valid is not None else 1
        self.plane = self.tables * self.N * (self.h + self.w)
        self.sizes = (self.B, self.H, self.W, self.plane)
        self.constants = dict(C=self.C, N=self.N, POOL=pool, HAS_VALID=valid is not None)
        self.tile_x, self.tile_y = (_tile(self.block_d, length) for length in (self.w, self.h))
        self.programs_x = self.B * self.h * triton.cdiv(self.w, self.tile_x['BLOCK_I']) * self.chunks
        self.programs_y = self.B * self.w * triton.cdiv(self.h, self.tile_y['BLOCK_I']) * self.chunks


def _prepare(x: Tensor, position: Tensor, valid: Tensor | None, s: _Shapes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tokens' statistics, the axes' tables and the channels' shifts: intra, shift, rows, bands."""
    intra = x.new_empty(2, s.B, s.H, s.W, dtype=torch.float32)
    shift = x.new_empty(s.B, s.C, dtype=torch.float32)
    rows = x.new_empty(3, s.tables, s.N, s.w + s.h, dtype=torch.float32)
    bands = x.new_empty(4, s.tables, s.N, s.w + s.h, dtype=torch.int32)
    block_c, block_s = triton.next_power_of_2(s.C), 32
    block_t = max(4096 // block_c, 1)
    programs = (
        triton.cdiv(s.B * s.H * s.W, block_t)
        + s.tables * s.N * (triton.cdiv(s.w, block_s) + triton.cdiv(s.h, block_s))
        + s.B * triton.cdiv(s.C, block_s)
    )
    prepare.prepare_kernel[(programs,)](
        x, position, valid,
        intra, rows, bands, shift,
        *s.sizes, **s.constants, BLOCK_T=block_t, BLOCK_C=block_c, BLOCK_S=block_s,
    )  # fmt: skip
    return intra, shift, rows, bands


def _moments(
    x: Tensor, position: Tensor, valid: Tensor | None, shift: Tensor, rows: Tensor, bands: Tensor, s: _Shapes
) -> tuple[Tensor, Tensor]:
    """Pooled tokens (the tokens themselves, or the means of windows minus the shift) and their moments along x."""
    pooled = x
    if s.pool > 1:
        pooled = x.new_empty(s.B, s.h, s.w, s.C, dtype=torch.float32)
        block_c = triton.next_power_of_2(s.C)
        block_i = max(4096 // block_c, 1)
        prepare.pool_kernel[(s.B * s.h * triton.cdiv(s.w, block_i),)](
            x, valid, shift,
            pooled,
            s.H, s.W, C=s.C, POOL=s.pool, HAS_VALID=valid is not None, BLOCK_I=block_i, BLOCK_C=block_c,
        )  # fmt: skip
    moments = x.new_empty(2, s.B, s.h, s.w, s.C, dtype=torch.float32)
    along.moments_kernel[(s.programs_x,)](
        pooled, shift, position, valid, rows, bands, moments, *s.sizes, BACKWARD=False, **s.constants, **s.tile_x
    )
    return pooled, moments


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
            _, moments = _moments(x, position, valid, shift, rows, bands, s)
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
        direct = torch.empty_like(x, dtype=torch.float32)
        token_sums = x.new_empty(2, s.B, s.H, s.W, s.chunks, dtype=torch.float32)
        partial_y = x.new_empty(s.programs_y // s.chunks, s.chunks, 2 * s.block_d + 4, dtype=torch.float32)
        partial_x = x.new_empty(s.programs_x // s.chunks, s.chunks, 2, dtype=torch.float32)
        with torch.cuda.device_of(x):
            pooled, moments = _moments(x, position, valid, shift, rows, bands, s)
            grads = torch.empty_like(moments)
            normalize.normalize_backward_kernel[(s.programs_y,)](
                x, dy, weight, mean_logit, var_logit, position, valid,
                intra, shift, rows, bands, moments,
                grads, direct, token_sums, partial_y,
                *s.sizes, ctx.eps, **s.constants, **s.tile_y, HAS_MEAN=mean_logit is not None,
            )  # fmt: skip
            along.moments_kernel[(s.programs_y,)](
                grads, shift, position, valid, rows, bands, moments, *s.sizes, BACKWARD=True, **s.constants, **s.tile_y
            )
            along.back_along_x_kernel[(s.programs_x,)](
                x, pooled, position, valid, intra, shift, rows, bands,
                moments, direct, token_sums,
                dx, partial_x,
                *s.sizes, **s.constants, **s.tile_x, BLOCK_G=triton.next_power_of_2(s.chunks),
            )  # fmt: skip
        # Over the programs, and for the parameters of a head over its chunks.
        head_dim, sums, sums_x = s.C // s.N, partial_y.sum(dim=0), partial_x.sum(dim=0)
        sums[:, -2] += sums_x[:, 0]
        d_weight, d_bias = (
            part.reshape(s.N, -1)[:, :head_dim].flatten() for part in sums[:, :-4].split(s.block_d, dim=1)
        )
        d_mean_logit, d_var_logit, d_a1, d_a3 = sums[:, -4:].reshape(s.N, -1, 4).sum(dim=1).T.contiguous()
        d_a2 = sums_x[:, 1].reshape(s.N, -1).sum(dim=1)
        d_position = torch.stack([d_a1, d_a2, d_a3], dim=1)
        parameters = (weight, bias, mean_logit, var_logit, position)
        pairs = zip(parameters, (d_weight, d_bias, d_mean_logit, d_var_logit, d_position), strict=True)
        gradients = [None if t is None else gradient.to(t.dtype) for t, gradient in pairs]
        return dx, *gradients, None, None, None, None
