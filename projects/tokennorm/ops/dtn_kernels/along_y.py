"""Products with Py, along the y axis."""

import triton
import triton.language as tl

from tokennorm.ops.dtn_kernels.axis import (
    PRECISION,
    axis_parameters,
    axis_table,
    loop_bounds,
    position_factors,
    weights,
)
from tokennorm.ops.dtn_kernels.programs import channel_chunk, column_block


@triton.jit
def apply_along_y(
    moments_ptr, size, i, first, last, rows_ptr, h, w, a1, slope, length, c, real_c,
    C: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Rows i of Py times both planes of `moments`. The pointer is at the first pooled token of the column."""
    mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    for k0 in range(first, last + 1, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        p = weights(i[:, None], k[None, :], rows_ptr, h, a1, slope, length)
        mask = (k < length)[:, None] & real_c[None, :]
        pointers = moments_ptr + k.to(tl.int64)[:, None] * (w * C) + c[None, :]
        mean = tl.dot(p, tl.load(pointers, mask=mask, other=0), mean, input_precision=PRECISION)
        square = tl.dot(p, tl.load(pointers + size, mask=mask, other=0), square, input_precision=PRECISION)
    return mean, square


@triton.jit
def position_gradients(
    d_mean, d_square, moments_ptr, size, i, first, last, rows_ptr, h, w, plane, a1, slope, length, c, real_c,
    C: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Gradients of a1, of the y axis, and a3: those of the moments times dPy/da applied to the moments along x."""
    a1_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a1_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a3_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a3_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    for k0 in range(first, last + 1, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        p = weights(i[:, None], k[None, :], rows_ptr, h, a1, slope, length)
        quadratic, linear = position_factors(i[:, None], k[None, :], rows_ptr, h, plane, a1, slope, length)
        mask = (k < length)[:, None] & real_c[None, :]
        pointers = moments_ptr + k.to(tl.int64)[:, None] * (w * C) + c[None, :]
        means = tl.load(pointers, mask=mask, other=0)
        squares = tl.load(pointers + size, mask=mask, other=0)
        a1_mean = tl.dot(p * quadratic, means, a1_mean, input_precision=PRECISION)
        a3_mean = tl.dot(p * linear, means, a3_mean, input_precision=PRECISION)
        a1_square = tl.dot(p * quadratic, squares, a1_square, input_precision=PRECISION)
        a3_square = tl.dot(p * linear, squares, a3_square, input_precision=PRECISION)
    d_a1 = tl.sum(d_mean * a1_mean + d_square * a1_square)
    return d_a1, tl.sum(d_mean * a3_mean + d_square * a3_square)


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def back_along_y_kernel(
    grads_ptr, position_ptr, valid_ptr, rows_ptr, bands_ptr,
    moments_ptr,
    B, H, W, plane,
    C: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Overwrites `moments` with Py^T times `grads`. One program: BLOCK_I positions of a column, one chunk."""
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    _, head, c, real_c, program = channel_chunk(tl.program_id(0), C, N, BLOCK_D)
    image, column, j = column_block(program, h, w, BLOCK_I)
    a1, slope, length = axis_parameters(position_ptr, valid_ptr, image, head, H, 1, POOL, HAS_VALID)
    table = axis_table(image, head, h, w, w, N, HAS_VALID)
    first, last = loop_bounds(bands_ptr + table + 2 * plane, plane, j, h)
    start = (image.to(tl.int64) * h * w + column) * C
    size = B.to(tl.int64) * h * w * C
    d_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    d_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    for i0 in range(first, last + 1, BLOCK_K):
        i = i0 + tl.arange(0, BLOCK_K)
        p = weights(i[None, :], j[:, None], rows_ptr + table, h, a1, slope, length)
        mask = (i < h)[:, None] & real_c[None, :]
        pointers = grads_ptr + start + i.to(tl.int64)[:, None] * (w * C) + c[None, :]
        d_mean = tl.dot(p, tl.load(pointers, mask=mask, other=0), d_mean, input_precision=PRECISION)
        d_square = tl.dot(p, tl.load(pointers + size, mask=mask, other=0), d_square, input_precision=PRECISION)

    out = moments_ptr + start + j.to(tl.int64)[:, None] * (w * C) + c[None, :]
    mask = (j < h)[:, None] & real_c[None, :]
    tl.store(out, d_mean, mask=mask)
    tl.store(out + size, d_square, mask=mask)
