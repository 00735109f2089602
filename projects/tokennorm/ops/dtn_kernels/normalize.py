"""The last step of the forward pass, y, and the first of the backward pass; the gradients of the parameters."""

import triton
import triton.language as tl

from tokennorm.ops.dtn_kernels.along import apply_along_y, position_gradients
from tokennorm.ops.dtn_kernels.axis import (
    axis_parameters,
    axis_table,
    channel_chunk,
    column_block,
    loop_bounds,
    valid_tokens,
    window_token,
)


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def normalize_kernel(
    x_ptr, weight_ptr, bias_ptr, mean_logit_ptr, var_logit_ptr, position_ptr, valid_ptr,
    intra_ptr, shift_ptr, rows_ptr, bands_ptr, moments_ptr,
    y_ptr,
    B, H, W, plane, eps,
    C: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, HAS_MEAN: tl.constexpr, HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Multiplies `moments` by Py and writes y. One program: BLOCK_I windows of a column, one chunk."""
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    _, head, c, real_c, program = channel_chunk(tl.program_id(0), C, N, BLOCK_D)
    image, column, i = column_block(program, h, w, BLOCK_I)
    a1, slope, length = axis_parameters(position_ptr, valid_ptr, image, head, H, 1, POOL, HAS_VALID)
    table = axis_table(image, head, h, w, w, N, HAS_VALID)
    first, last = loop_bounds(bands_ptr + table, plane, i, h)
    start = (image.to(tl.int64) * h * w + column) * C
    size = B.to(tl.int64) * h * w * C
    mean, square = apply_along_y(
        moments_ptr + start, size, i, first, last, rows_ptr + table, h, w, a1, slope, length, c, real_c,
        C, BLOCK_D, BLOCK_I, BLOCK_K,
    )  # fmt: skip
    var = tl.maximum(square - mean * mean, 0)

    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    gamma = tl.load(weight_ptr + c, mask=real_c, other=0).to(tl.float32)
    beta = tl.load(bias_ptr + c, mask=real_c, other=0).to(tl.float32)
    mean_lambda, var_lambda, _, _ = load_lambdas(mean_logit_ptr, var_logit_ptr, head, HAS_MEAN)
    height = valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    tokens = B.to(tl.int64) * H * W
    for t in range(POOL * POOL):
        row, token_x, token, real = window_token(image, i, column, t, H, W, POOL)
        mask = real[:, None] & real_c[None, :]
        x = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=mask, other=0).to(tl.float32)
        inside = ((row < height) & (token_x < width))[:, None]
        token_mean, token_var = load_intra(intra_ptr, token, real, tokens)
        centered, inverse, _mean_step, _var_step = normalize_tokens(
            x, token_mean, token_var, mean, var, shift, mean_lambda, var_lambda, inside, eps, HAS_MEAN
        )
        y = centered * inverse * gamma[None, :] + beta[None, :]
        tl.store(y_ptr + token[:, None] * C + c[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def load_lambdas(mean_logit_ptr, var_logit_ptr, head, HAS_MEAN: tl.constexpr):
    """The head's lambda for the mean, 1 if it has none, and for the variance; then 1 - lambda, without cancellation."""
    mean_lambda = 1.0
    mean_rest = 0.0
    if HAS_MEAN:
        mean_logit = tl.load(mean_logit_ptr + head).to(tl.float32)
        mean_lambda = tl.sigmoid(mean_logit)
        mean_rest = tl.sigmoid(-mean_logit)
    var_logit = tl.load(var_logit_ptr + head).to(tl.float32)
    return mean_lambda, tl.sigmoid(var_logit), mean_rest, tl.sigmoid(-var_logit)


@triton.jit
def load_intra(intra_ptr, token, real, tokens):
    """Mean and variance of the tokens as column vectors."""
    mean = tl.load(intra_ptr + token, mask=real, other=0)
    return mean[:, None], tl.load(intra_ptr + tokens + token, mask=real, other=1)[:, None]


@triton.jit
def normalize_tokens(
    x, token_mean, token_var, mean, var, shift, mean_lambda, var_lambda, inside, eps, HAS_MEAN: tl.constexpr
):
    """x minus the mixed mean, and 1 / sqrt(mixed variance + eps).

    The third and fourth result are the derivatives of the mixed statistics with respect to lambda. Tokens outside the
    image use their own statistics: there lambda is 1 and the derivatives are 0.
    """
    mean_step = tl.where(inside, (token_mean - shift[None, :]) - mean, 0)
    centered = x - token_mean
    if HAS_MEAN:
        # The shift is subtracted first: what is left of a large offset is small.
        centered = tl.where(inside, (x - shift[None, :]) - mean - mean_lambda * mean_step, centered)
    var_step = tl.where(inside, token_var - var, 0)
    inverse = tl.rsqrt(tl.where(inside, var + var_lambda * var_step, token_var) + eps)
    return centered, inverse, mean_step, var_step


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def normalize_backward_kernel(
    x_ptr, dy_ptr, weight_ptr, mean_logit_ptr, var_logit_ptr, position_ptr, valid_ptr,
    intra_ptr, shift_ptr, rows_ptr, bands_ptr, moments_ptr,
    grads_ptr, direct_ptr, token_sums_ptr, partial_ptr,
    B, H, W, plane, eps,
    C: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, HAS_MEAN: tl.constexpr, HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Computes the statistics again and writes `direct`, `token_sums` and `grads`. Programs as in `normalize_kernel`.

    It also writes a row of `partial` (programs, G, 2 BLOCK_D + 4): its sums for gamma, beta, the two logits, a1, of the
    y axis, and a3.
    """
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    CHUNKS: tl.constexpr = N * ((C // N + BLOCK_D - 1) // BLOCK_D)
    chunk, head, c, real_c, program = channel_chunk(tl.program_id(0), C, N, BLOCK_D)
    image, column, i = column_block(program, h, w, BLOCK_I)
    a1, slope, length = axis_parameters(position_ptr, valid_ptr, image, head, H, 1, POOL, HAS_VALID)
    table = axis_table(image, head, h, w, w, N, HAS_VALID)
    first, last = loop_bounds(bands_ptr + table, plane, i, h)
    start = (image.to(tl.int64) * h * w + column) * C
    size = B.to(tl.int64) * h * w * C
    mean, square = apply_along_y(
        moments_ptr + start, size, i, first, last, rows_ptr + table, h, w, a1, slope, length, c, real_c,
        C, BLOCK_D, BLOCK_I, BLOCK_K,
    )  # fmt: skip
    raw_var = square - mean * mean
    mean_lambda, var_lambda, mean_rest, var_rest = load_lambdas(mean_logit_ptr, var_logit_ptr, head, HAS_MEAN)
    d_gamma, d_beta, d_means, d_vars, d_mean_lambda, d_var_lambda = back_to_statistics(
        x_ptr, dy_ptr, weight_ptr, valid_ptr, intra_ptr, shift_ptr, direct_ptr, token_sums_ptr + chunk,
        mean, tl.maximum(raw_var, 0), mean_lambda, var_lambda, image, column, i, c, real_c,
        B, H, W, eps, C, CHUNKS, POOL, HAS_MEAN, HAS_VALID, BLOCK_D, BLOCK_I,
    )  # fmt: skip

    d_square = tl.where(raw_var >= 0, var_rest * d_vars, 0)
    d_mean = mean_rest * d_means - 2 * mean * d_square
    out = grads_ptr + start + i.to(tl.int64)[:, None] * (w * C) + c[None, :]
    mask = (i < h)[:, None] & real_c[None, :]
    tl.store(out, d_mean, mask=mask)
    tl.store(out + size, d_square, mask=mask)

    d_a1, d_a3 = position_gradients(
        d_mean, d_square, moments_ptr + start, size, i, first, last, rows_ptr + table, h, w, plane, a1, slope, length,
        c, real_c, C, BLOCK_D, BLOCK_I, BLOCK_K,
    )  # fmt: skip
    partial = partial_ptr + tl.program_id(0).to(tl.int64) * (2 * BLOCK_D + 4)
    d = tl.arange(0, BLOCK_D)
    tl.store(partial + d, d_gamma)
    tl.store(partial + BLOCK_D + d, d_beta)
    partial += 2 * BLOCK_D
    tl.store(partial, tl.sum(d_mean_lambda, axis=0) * mean_lambda * mean_rest)
    tl.store(partial + 1, tl.sum(d_var_lambda, axis=0) * var_lambda * var_rest)
    tl.store(partial + 2, d_a1)
    tl.store(partial + 3, d_a3)


@triton.jit
def back_to_statistics(
    x_ptr, dy_ptr, weight_ptr, valid_ptr, intra_ptr, shift_ptr, direct_ptr, token_sums_ptr,
    mean, var, mean_lambda, var_lambda, image, column, i, c, real_c,
    B, H, W, eps, C: tl.constexpr, CHUNKS: tl.constexpr, POOL: tl.constexpr,
    HAS_MEAN: tl.constexpr, HAS_VALID: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """Writes `direct` and `token_sums` of all tokens in the windows.

    Returns the gradients of gamma and beta (BLOCK_D,), of each window's mixed mean and variance (BLOCK_I, BLOCK_D), and
    of lambda for the mean and the variance (BLOCK_I,).
    """
    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    gamma = tl.load(weight_ptr + c, mask=real_c, other=0).to(tl.float32)
    height = valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    tokens = B.to(tl.int64) * H * W
    d_gamma = tl.zeros([BLOCK_D], tl.float32)
    d_beta = tl.zeros([BLOCK_D], tl.float32)
    d_means = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    d_vars = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    d_mean_lambda = tl.zeros([BLOCK_I], tl.float32)
    d_var_lambda = tl.zeros([BLOCK_I], tl.float32)
    for t in range(POOL * POOL):
        row, token_x, token, real = window_token(image, i, column, t, H, W, POOL)
        mask = real[:, None] & real_c[None, :]
        x = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=mask, other=0).to(tl.float32)
        dy = tl.load(dy_ptr + token[:, None] * C + c[None, :], mask=mask, other=0).to(tl.float32)
        inside = ((row < height) & (token_x < width))[:, None]
        token_mean, token_var = load_intra(intra_ptr, token, real, tokens)
        centered, inverse, mean_step, var_step = normalize_tokens(
            x, token_mean, token_var, mean, var, shift, mean_lambda, var_lambda, inside, eps, HAS_MEAN
        )
        normalized = centered * inverse
        # dy is zero outside the mask, and therefore also everything that follows.
        d_gamma += tl.sum(dy * normalized, axis=0)
        d_beta += tl.sum(dy, axis=0)
        d_x = dy * gamma[None, :] * inverse
        d_var = -0.5 * d_x * normalized * inverse
        d_means -= tl.where(inside, d_x, 0)
        d_vars += tl.where(inside, d_var, 0)
        if HAS_MEAN:
            d_mean_lambda -= tl.sum(d_x * mean_step, axis=1)
        d_var_lambda += tl.sum(d_var * var_step, axis=1)
        tl.store(direct_ptr + token[:, None] * C + c[None, :], d_x, mask=mask)
        sums = token_sums_ptr + token * CHUNKS
        tl.store(sums, -tl.sum(tl.where(inside, mean_lambda, 1.0) * d_x, axis=1), mask=real)
        tl.store(sums + tokens * CHUNKS, tl.sum(tl.where(inside, var_lambda, 1.0) * d_var, axis=1), mask=real)
    return d_gamma, d_beta, d_means, d_vars, d_mean_lambda, d_var_lambda


@triton.jit
def parameters_kernel(
    sums_ptr, sums_x_ptr,
    weight_ptr, bias_ptr, mean_logit_ptr, var_logit_ptr, position_ptr,
    C: tl.constexpr, N: tl.constexpr, HAS_MEAN: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Writes the gradients from the summed `partial`s, (G, 2 BLOCK_D + 4) and (G, 2). One program: one head."""
    D: tl.constexpr = C // N
    BLOCKS: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    head = tl.program_id(0)
    mean_logit = 0.0
    var_logit = 0.0
    a1 = 0.0
    a2 = 0.0
    a3 = 0.0
    for block in range(BLOCKS):
        chunk = head * BLOCKS + block
        sums = sums_ptr + chunk * (2 * BLOCK_D + 4)
        k = tl.arange(0, BLOCK_D)
        d = block * BLOCK_D + k
        weight = tl.load(sums + k)
        bias = tl.load(sums + BLOCK_D + k)
        tl.store(weight_ptr + head * D + d, weight.to(weight_ptr.dtype.element_ty), mask=d < D)
        tl.store(bias_ptr + head * D + d, bias.to(bias_ptr.dtype.element_ty), mask=d < D)
        sums += 2 * BLOCK_D
        mean_logit += tl.load(sums)
        var_logit += tl.load(sums + 1)
        a1 += tl.load(sums + 2) + tl.load(sums_x_ptr + 2 * chunk)
        a2 += tl.load(sums_x_ptr + 2 * chunk + 1)
        a3 += tl.load(sums + 3)
    if HAS_MEAN:
        tl.store(mean_logit_ptr + head, mean_logit.to(mean_logit_ptr.dtype.element_ty))
    tl.store(var_logit_ptr + head, var_logit.to(var_logit_ptr.dtype.element_ty))
    tl.store(position_ptr + 3 * head, a1.to(position_ptr.dtype.element_ty))
    tl.store(position_ptr + 3 * head + 1, a2.to(position_ptr.dtype.element_ty))
    tl.store(position_ptr + 3 * head + 2, a3.to(position_ptr.dtype.element_ty))
