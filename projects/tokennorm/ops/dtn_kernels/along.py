"""Products with Px along the x axis and with Py along the y axis, forward and backward."""

import triton
import triton.language as tl

from tokennorm.ops.dtn_kernels.axis import (
    PRECISION,
    axis_parameters,
    line_of_program,
    line_offsets,
    position_factors,
    valid_tokens,
    weights,
    window_tokens,
)
from tokennorm.ops.dtn_kernels.prepare import load_shifted, window_count


@triton.jit
def products(
    planes_ptr, shift, position_ptr, valid_ptr, rows_ptr, bands_ptr,
    head, c, real_c, image, i, start, size, H, W, plane,
    C: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
    AXIS: tl.constexpr, TRANSPOSED: tl.constexpr, GRADIENTS: tl.constexpr,
):  # fmt: skip
    """Rows i of Px (AXIS 0) or Py (AXIS 1), or of its transpose, times two planes of the program's row or column.

    The planes are `size` elements apart. Those of Px, not transposed, are the pooled tokens minus the shift, and their
    squares. With GRADIENTS the last four results are the products with the derivatives of P, of both planes with
    respect to a1 and then to a2 or a3; otherwise they are 0.
    """
    w = tl.cdiv(W, POOL)
    h = tl.cdiv(H, POOL)
    n = w if AXIS == 0 else h
    tokens = W if AXIS == 0 else H
    a1, slope, length = axis_parameters(position_ptr, valid_ptr, image, head, tokens, AXIS, POOL, HAS_VALID)
    table = head * (w + h) + AXIS * w
    if HAS_VALID:
        table += image * N * (w + h)
    rows_ptr += table
    bands_ptr += table
    if TRANSPOSED:
        bands_ptr += 2 * plane
    # The loop runs over the union of the bands of these rows or, of the transpose, columns.
    first = tl.min(tl.load(bands_ptr + i, mask=i < n, other=2147483647), axis=0)
    last = tl.max(tl.load(bands_ptr + plane + i, mask=i < n, other=-1), axis=0)
    p_first = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    p_second = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a1_first = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a1_second = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a2_first = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a2_second = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    for k0 in range(first, last + 1, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        row = k[None, :] if TRANSPOSED else i[:, None]
        column = i[:, None] if TRANSPOSED else k[None, :]
        p = weights(row, column, rows_ptr, n, a1, slope, length)
        mask = (k < (n if TRANSPOSED else length))[:, None] & real_c[None, :]
        pointers = planes_ptr + start + line_offsets(k, c, w, AXIS, C)
        if AXIS == 0 and not TRANSPOSED:
            one = load_shifted(pointers, mask, shift, POOL)
            two = one * one
        else:
            one = tl.load(pointers, mask=mask, other=0)
            two = tl.load(pointers + size, mask=mask, other=0)
        p_first = tl.dot(p, one, p_first, input_precision=PRECISION)
        p_second = tl.dot(p, two, p_second, input_precision=PRECISION)
        if GRADIENTS:
            quadratic, linear = position_factors(row, column, rows_ptr, n, plane, a1, slope, length)
            a1_first = tl.dot(p * quadratic, one, a1_first, input_precision=PRECISION)
            a1_second = tl.dot(p * quadratic, two, a1_second, input_precision=PRECISION)
            a2_first = tl.dot(p * linear, one, a2_first, input_precision=PRECISION)
            a2_second = tl.dot(p * linear, two, a2_second, input_precision=PRECISION)
    return p_first, p_second, a1_first, a1_second, a2_first, a2_second


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def moments_kernel(
    source_ptr, shift_ptr, position_ptr, valid_ptr, rows_ptr, bands_ptr,
    moments_ptr,
    B, H, W, plane,
    BACKWARD: tl.constexpr,
    C: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Writes `moments` = Px (x - shift) and Px (x - shift)^2, from `pooled`; or with BACKWARD Py^T times `grads`.

    One program: BLOCK_I positions of a row, or with BACKWARD of a column, and one chunk.
    """
    AXIS: tl.constexpr = 1 if BACKWARD else 0
    _, head, c, real_c, image, _, i, start, size = line_of_program(B, H, W, C, N, POOL, BLOCK_D, BLOCK_I, AXIS)
    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    first, second, _, _, _, _ = products(
        source_ptr, shift, position_ptr, valid_ptr, rows_ptr, bands_ptr,
        head, c, real_c, image, i, start, size, H, W, plane,
        C, N, POOL, HAS_VALID, BLOCK_D, BLOCK_I, BLOCK_K,
        AXIS, TRANSPOSED=BACKWARD, GRADIENTS=False,
    )  # fmt: skip
    w = tl.cdiv(W, POOL)
    out = moments_ptr + start + line_offsets(i, c, w, AXIS, C)
    mask = (i < (tl.cdiv(H, POOL) if BACKWARD else w))[:, None] & real_c[None, :]
    tl.store(out, first, mask=mask)
    tl.store(out + size, second, mask=mask)


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
    _, head, c, real_c, image, y, j, start, size = line_of_program(B, H, W, C, N, POOL, BLOCK_D, BLOCK_I, AXIS=0)
    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    height = valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    real_j = (j < tl.cdiv(width, POOL))[:, None] & real_c[None, :]
    pooled = load_shifted(pooled_ptr + start + line_offsets(j, c, 0, 0, C), real_j, shift, POOL)
    d_mean, d_square, a1_mean, a1_square, a2_mean, a2_square = products(
        moments_ptr, shift, position_ptr, valid_ptr, rows_ptr, bands_ptr,
        head, c, real_c, image, j, start, size, H, W, plane,
        C, N, POOL, HAS_VALID, BLOCK_D, BLOCK_I, BLOCK_K,
        AXIS=0, TRANSPOSED=True, GRADIENTS=True,
    )  # fmt: skip
    partial = partial_ptr + tl.program_id(0).to(tl.int64) * 2
    tl.store(partial, tl.sum(pooled * (a1_mean + pooled * a1_square)))
    tl.store(partial + 1, tl.sum(pooled * (a2_mean + pooled * a2_square)))

    count = window_count(y, height, POOL) * window_count(j, width, POOL)
    d_token = (d_mean + 2 * pooled * d_square) / count[:, None]
    tokens = B.to(tl.int64) * H * W
    g = tl.arange(0, BLOCK_G)
    CHUNKS: tl.constexpr = N * ((C // N + BLOCK_D - 1) // BLOCK_D)
    for t in range(POOL * POOL):
        token, real, inside, at, mask = window_tokens(image, y, j, t, H, W, height, width, c, real_c, POOL, C)
        x = tl.load(x_ptr + at, mask=mask, other=0).to(tl.float32)
        dx = tl.load(direct_ptr + at, mask=mask, other=0)
        dx += tl.where(inside, d_token, 0)
        # Through the token's own mean and variance, whose gradients are the sums over the chunks.
        sums = token_sums_ptr + token[:, None] * CHUNKS + g[None, :]
        real_g = real[:, None] & (g < CHUNKS)[None, :]
        mean = tl.load(intra_ptr + token, mask=real, other=0)[:, None]
        d_own_mean = tl.sum(tl.load(sums, mask=real_g, other=0), axis=1)[:, None]
        d_own_var = tl.sum(tl.load(sums + tokens * CHUNKS, mask=real_g, other=0), axis=1)[:, None]
        dx += (d_own_mean + 2 * (x - mean) * d_own_var) / C
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=mask)
