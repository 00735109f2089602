"""Moments along the x axis, products with Py along the y axis, and the backward passes along both."""

import triton
import triton.language as tl

from tokennorm.ops.dtn_kernels.axis import (
    PRECISION,
    axis_parameters,
    axis_table,
    channel_chunk,
    column_block,
    loop_bounds,
    position_factors,
    row_block,
    valid_tokens,
    weights,
    window_token,
)
from tokennorm.ops.dtn_kernels.prepare import load_shifted, window_count


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def along_x_kernel(
    pooled_ptr, shift_ptr, position_ptr, valid_ptr, rows_ptr, bands_ptr,
    moments_ptr,
    B, H, W, plane,
    C: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Writes `moments` = Px (x - shift) and Px (x - shift)^2. One program: BLOCK_I positions of a row, one chunk."""
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    _, head, c, real_c, program = channel_chunk(tl.program_id(0), C, N, BLOCK_D)
    image, line, i = row_block(program, h, w, BLOCK_I)
    a1, slope, length = axis_parameters(position_ptr, valid_ptr, image, head, W, 0, POOL, HAS_VALID)
    table = axis_table(image, head, h, w, 0, N, HAS_VALID)
    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)

    start = line.to(tl.int64) * w * C
    mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    first, last = loop_bounds(bands_ptr + table, plane, i, w)
    for k0 in range(first, last + 1, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        p = weights(i[:, None], k[None, :], rows_ptr + table, w, a1, slope, length)
        mask = (k < length)[:, None] & real_c[None, :]
        x = load_shifted(pooled_ptr + start + k[:, None] * C + c[None, :], mask, shift, POOL)
        mean = tl.dot(p, x, mean, input_precision=PRECISION)
        square = tl.dot(p, x * x, square, input_precision=PRECISION)

    out = moments_ptr + start + i[:, None] * C + c[None, :]
    mask = (i < w)[:, None] & real_c[None, :]
    tl.store(out, mean, mask=mask)
    tl.store(out + B.to(tl.int64) * h * w * C, square, mask=mask)


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def back_along_x_kernel(
    x_ptr, pooled_ptr, position_ptr, valid_ptr, intra_ptr, shift_ptr, rows_ptr, bands_ptr,
    moments_ptr, direct_ptr, token_sums_ptr,
    dx_ptr, partial_ptr,
    B, H, W, plane,
    C: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Multiplies the gradients in `moments` by Px^T and writes dx. One program: BLOCK_I positions of a row, one chunk.

    It also writes a row of `partial` (programs, G, 2): its sums for a1, of the x axis, and a2.
    """
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    CHUNKS: tl.constexpr = N * ((C // N + BLOCK_D - 1) // BLOCK_D)
    _, head, c, real_c, program = channel_chunk(tl.program_id(0), C, N, BLOCK_D)
    image, line, j = row_block(program, h, w, BLOCK_I)
    y = line % h
    a1, slope, length = axis_parameters(position_ptr, valid_ptr, image, head, W, 0, POOL, HAS_VALID)
    table = axis_table(image, head, h, w, 0, N, HAS_VALID)
    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    start = line.to(tl.int64) * w * C
    size = B.to(tl.int64) * h * w * C
    real_j = (j < length)[:, None] & real_c[None, :]
    pooled = load_shifted(pooled_ptr + start + j[:, None] * C + c[None, :], real_j, shift, POOL)

    first, last = loop_bounds(bands_ptr + table + 2 * plane, plane, j, w)
    d_mean, d_square, a1_mean, a1_square, a2_mean, a2_square = transposed_products(
        moments_ptr + start, size, j, first, last, rows_ptr + table, w, plane, a1, slope, length, c, real_c,
        C, BLOCK_D, BLOCK_I, BLOCK_K,
    )  # fmt: skip
    partial = partial_ptr + tl.program_id(0).to(tl.int64) * 2
    tl.store(partial, tl.sum(pooled * (a1_mean + pooled * a1_square)))
    tl.store(partial + 1, tl.sum(pooled * (a2_mean + pooled * a2_square)))

    height = valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    count = window_count(y, height, POOL) * window_count(j, width, POOL)
    d_token = (d_mean + 2 * pooled * d_square) / count[:, None]
    for t in range(POOL * POOL):
        row, column, token, real = window_token(image, y, j, t, H, W, POOL)
        mask = real[:, None] & real_c[None, :]
        x = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=mask, other=0).to(tl.float32)
        dx = tl.load(direct_ptr + token[:, None] * C + c[None, :], mask=mask, other=0)
        dx += tl.where(((row < height) & (column < width))[:, None], d_token, 0)
        tokens = B.to(tl.int64) * H * W
        dx += through_intra_statistics(x, intra_ptr, token_sums_ptr, token, real, tokens, C, CHUNKS, BLOCK_G)
        tl.store(dx_ptr + token[:, None] * C + c[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def transposed_products(
    grads_ptr, size, j, first, last, rows_ptr, w, plane, a1, slope, length, c, real_c,
    C: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Px^T, (dPx/da1)^T and (dPx/da2)^T, each times both planes of the gradients of one row of the grid.

    The first two are the gradients of x - shift and its square. The others, times x - shift and its square, sum to the
    gradients of a1 and a2.
    """
    d_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    d_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a1_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a1_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a2_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a2_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    for i0 in range(first, last + 1, BLOCK_K):
        i = i0 + tl.arange(0, BLOCK_K)
        p = weights(i[None, :], j[:, None], rows_ptr, w, a1, slope, length)
        mask = (i < w)[:, None] & real_c[None, :]
        pointers = grads_ptr + i[:, None] * C + c[None, :]
        d_means = tl.load(pointers, mask=mask, other=0)
        d_squares = tl.load(pointers + size, mask=mask, other=0)
        d_mean = tl.dot(p, d_means, d_mean, input_precision=PRECISION)
        d_square = tl.dot(p, d_squares, d_square, input_precision=PRECISION)
        quadratic, linear = position_factors(i[None, :], j[:, None], rows_ptr, w, plane, a1, slope, length)
        a1_mean = tl.dot(p * quadratic, d_means, a1_mean, input_precision=PRECISION)
        a2_mean = tl.dot(p * linear, d_means, a2_mean, input_precision=PRECISION)
        a1_square = tl.dot(p * quadratic, d_squares, a1_square, input_precision=PRECISION)
        a2_square = tl.dot(p * linear, d_squares, a2_square, input_precision=PRECISION)
    return d_mean, d_square, a1_mean, a1_square, a2_mean, a2_square


@triton.jit
def through_intra_statistics(
    x, intra_ptr, token_sums_ptr, token, real, tokens, C: tl.constexpr, CHUNKS: tl.constexpr, BLOCK_G: tl.constexpr
):
    """The part of dx that passes through the token's own mean and variance."""
    g = tl.arange(0, BLOCK_G)
    sums = token_sums_ptr + token[:, None] * CHUNKS + g[None, :]
    mask = real[:, None] & (g < CHUNKS)[None, :]
    mean = tl.load(intra_ptr + token, mask=real, other=0)[:, None]
    d_mean = tl.sum(tl.load(sums, mask=mask, other=0), axis=1)[:, None]
    d_var = tl.sum(tl.load(sums + tokens * CHUNKS, mask=mask, other=0), axis=1)[:, None]
    return (d_mean + 2 * (x - mean) * d_var) / C


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
