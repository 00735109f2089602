"""The products with Px and Py of DTN in Triton, for CUDA devices: the rest of `triton_dtn` is the eager form.

A product multiplies two planes by the weights of one axis, row by row or column by column of the grid. It serves four
times: along x and along y, forward and backward. Weights below LIGHTEST of a row's largest are left out: together they
weigh less than float32 resolves. For a1 < 0 what is left is a narrow band of P.

No GPU has run this kernel in the tests. Importing needs Triton.

Letters: B images, h x w windows, C channels, N heads of D channels; S = h or w is the length of the axis. A plane is a
contiguous float32 tensor (B, h, w, C). P is (N, S, S), or (B, N, S, S) where padding differs between images.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.tensors import without_autocast

LIGHTEST = 2.0**-32
X, Y = 2, 1  # dimensions of a plane
# Products of float32 on tensor cores in three passes of TF32. Plain TF32 would leave ten bits.
PRECISION: tl.constexpr = tl.constexpr('tf32x3')


def products(x: Tensor, p_x: Tensor, p_y: Tensor) -> tuple[Tensor, Tensor]:
    """P x and P (x * x) for x (B, h, w, C), float32, and P of both axes: two tensors like x."""
    first, second = _Product.apply(x.contiguous(), None, p_x, X)
    return _Product.apply(first, second, p_y, Y)


triton_dtn = functools.partial(eager_dtn, products=products)


class _Product(torch.autograd.Function):
    """Both planes times P along an axis. Without a second plane it is the square of the first."""

    @staticmethod
    def forward(ctx, first, second, p, axis):
        ctx.save_for_backward(first, second, p)
        ctx.axis = axis
        return multiply(first, second, p, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_first, grad_second):
        """The gradients of the planes and of P. torch calls it."""
        first, second, p = ctx.saved_tensors
        with without_autocast(first):
            gradients = [g.contiguous() for g in (grad_first, grad_second)]
            grad_p = None
            if ctx.needs_input_grad[2]:
                planes = (first, first * first if second is None else second)
                grad_p = sum(_outer(g, plane, p, ctx.axis) for g, plane in zip(gradients, planes, strict=True))
            grad_first, grad_second = multiply(*gradients, p.mT, ctx.axis)
            if second is None:
                grad_first, grad_second = torch.addcmul(grad_first, first, grad_second, value=2), None
        return grad_first, grad_second, grad_p, None


def _outer(gradient: Tensor, plane: Tensor, p: Tensor, axis: int) -> Tensor:
    """The gradient of P: products of gradients and inputs, summed over all that share a weight."""
    gradient, plane = (t.unflatten(-1, (p.shape[-3], -1)) for t in (gradient, plane))
    rows, columns = ('byind', 'byjnd') if axis == X else ('bixnd', 'bjxnd')
    return torch.einsum(f'{rows},{columns}->{"b" if p.ndim == 4 else ""}nij', gradient, plane)


def multiply(first: Tensor, second: Tensor | None, p: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Launches the kernel: both planes times P, or a transposed view of P, along an axis."""
    batch, size, channels = first.shape[0], first.shape[axis], first.shape[3]
    head_dim = channels // p.shape[-3]
    lines = first.shape[X + Y - axis]
    outputs = torch.empty_like(first), torch.empty_like(first)
    band = band_of(p)
    blocks = blocks_for(size, head_dim)
    grid = (
        batch * lines * triton.cdiv(size, blocks['BLOCK_I']),
        p.shape[-3] * triton.cdiv(head_dim, blocks['BLOCK_D']),
    )
    with torch.cuda.device_of(first):
        product_kernel[grid](
            first, first if second is None else second, p, *band,
            *outputs,
            lines, size, *(first.stride(dim) for dim in (axis, X + Y - axis, 0)),
            *(p.stride(dim) for dim in (-2, -1, -3)), p.stride(0) if p.ndim == 4 else 0,
            band[0].stride(0) if p.ndim == 4 else 0,
            D=head_dim, SQUARE=second is None, **blocks,
        )  # fmt: skip
    return outputs


def blocks_for(size: int, head_dim: int) -> dict[str, int]:
    """A program's part of an axis: positions (at least 16, for tensor cores), channels, and the warps for them."""
    block_i, num_warps = (32, 8) if size > 16 else (16, 4)
    block_d = min(max(triton.next_power_of_2(head_dim), 16), 64)
    return dict(BLOCK_D=block_d, BLOCK_I=block_i, BLOCK_K=16, num_warps=num_warps, maxnreg=128)


def band_of(p: Tensor) -> tuple[Tensor, Tensor]:
    """First and last column with weight in each row of P, or of its transpose, two int32 tensors (..., N, S).

    A row of the transpose may have none: its last column is then before its first.
    """
    largest = p.amax(dim=-2 if p.stride(-1) > p.stride(-2) else -1, keepdim=True)  # of the rows of P itself
    heavy = ~(p <= LIGHTEST * largest)  # a NaN is
    index = torch.arange(p.shape[-1], dtype=torch.int32, device=p.device)
    return index.where(heavy, p.shape[-1]).amin(dim=-1), index.where(heavy, -1).amax(dim=-1)


@triton.jit(do_not_specialize=['lines', 'size'])
def product_kernel(
    first_ptr, second_ptr, p_ptr, from_ptr, to_ptr,  # planes, P, and the band of each of its rows
    first_out_ptr, second_out_ptr,
    lines, size, step, line_step, image_step,  # a line is one row or column of windows, and `size` its length
    p_row, p_column, p_head, p_image,
    band_image,
    D: tl.constexpr, SQUARE: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_I positions of a line, and at most BLOCK_D channels of a head."""
    chunks: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    head = tl.program_id(1) // chunks
    d = (tl.program_id(1) % chunks) * BLOCK_D + tl.arange(0, BLOCK_D)
    program = tl.program_id(0)
    line = program % lines  # neighboring programs read neighboring lines
    blocks = tl.cdiv(size, BLOCK_I)
    block = (program // lines) % blocks
    image = (program // lines // blocks).to(tl.int64)
    i = block * BLOCK_I + tl.arange(0, BLOCK_I)
    start = image * image_step + line.to(tl.int64) * line_step + (head * D + d)[None, :]
    p_ptr += image * p_image + head.to(tl.int64) * p_head
    band = image * band_image + head * size + i
    # The loop runs over the union of the bands of these rows.
    begin = tl.min(tl.load(from_ptr + band, mask=i < size, other=2147483647), axis=0)
    end = tl.max(tl.load(to_ptr + band, mask=i < size, other=-1), axis=0) + 1
    first = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    second = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    for k0 in range(begin, end, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        p = tl.load(
            p_ptr + i[:, None] * p_row + k[None, :] * p_column,
            mask=(i < size)[:, None] & (k < size)[None, :],
            other=0,
        )
        at = start + k[:, None].to(tl.int64) * step
        real = (k < size)[:, None] & (d < D)[None, :]
        one = tl.load(first_ptr + at, mask=real, other=0)
        two = one * one if SQUARE else tl.load(second_ptr + at, mask=real, other=0)
        first = tl.dot(p, one, first, input_precision=PRECISION)
        second = tl.dot(p, two, second, input_precision=PRECISION)
    at = start + i[:, None].to(tl.int64) * step
    real = (i < size)[:, None] & (d < D)[None, :]
    tl.store(first_out_ptr + at, first, mask=real)
    tl.store(second_out_ptr + at, second, mask=real)
