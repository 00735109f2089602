"""The last step of the forward pass, y, and the first of the backward pass."""

import triton
import triton.language as tl

from tokennorm.ops.dtn_kernels.along import products
from tokennorm.ops.dtn_kernels.axis import line_of_program, line_offsets, valid_tokens, window_tokens


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
    _, head, c, real_c, image, column, i, start, size = line_of_program(B, H, W, C, N, POOL, BLOCK_D, BLOCK_I, AXIS=1)
    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    mean, square, _, _, _, _ = products(
        moments_ptr, shift, position_ptr, valid_ptr, rows_ptr, bands_ptr,
        head, c, real_c, image, i, start, size, H, W, plane,
        C, N, POOL, HAS_VALID, BLOCK_D, BLOCK_I, BLOCK_K,
        AXIS=1, TRANSPOSED=False, GRADIENTS=False,
    )  # fmt: skip
    var = tl.maximum(square - mean * mean, 0)
    gamma = tl.load(weight_ptr + c, mask=real_c, other=0).to(tl.float32)
    beta = tl.load(bias_ptr + c, mask=real_c, other=0).to(tl.float32)
    mean_lambda, var_lambda, _, _ = load_lambdas(mean_logit_ptr, var_logit_ptr, head, HAS_MEAN)
    height = valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    tokens = B.to(tl.int64) * H * W
    for t in range(POOL * POOL):
        token, real, inside, at, mask = window_tokens(image, i, column, t, H, W, height, width, c, real_c, POOL, C)
        x = tl.load(x_ptr + at, mask=mask, other=0).to(tl.float32)
        centered, inverse, _mean_step, _var_step = normalize_tokens(
            x, intra_ptr, token, real, tokens, mean, var, shift, mean_lambda, var_lambda, inside, eps, HAS_MEAN
        )
        y = centered * inverse * gamma[None, :] + beta[None, :]
        tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask)


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
def normalize_tokens(
    x, intra_ptr, token, real, tokens, mean, var, shift, mean_lambda, var_lambda, inside, eps, HAS_MEAN: tl.constexpr
):
    """x minus the mixed mean, and 1 / sqrt(mixed variance + eps).

    The third and fourth result are the derivatives of the mixed statistics with respect to lambda. Tokens outside the
    image use their own statistics: there lambda is 1 and the derivatives are 0.
    """
    token_mean = tl.load(intra_ptr + token, mask=real, other=0)[:, None]
    token_var = tl.load(intra_ptr + tokens + token, mask=real, other=1)[:, None]
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
    chunk, head, c, real_c, image, column, i, start, size = line_of_program(
        B, H, W, C, N, POOL, BLOCK_D, BLOCK_I, AXIS=1
    )
    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    mean, square, a1_mean, a1_square, a3_mean, a3_square = products(
        moments_ptr, shift, position_ptr, valid_ptr, rows_ptr, bands_ptr,
        head, c, real_c, image, i, start, size, H, W, plane,
        C, N, POOL, HAS_VALID, BLOCK_D, BLOCK_I, BLOCK_K,
        AXIS=1, TRANSPOSED=False, GRADIENTS=True,
    )  # fmt: skip
    raw_var = square - mean * mean
    var = tl.maximum(raw_var, 0)
    gamma = tl.load(weight_ptr + c, mask=real_c, other=0).to(tl.float32)
    mean_lambda, var_lambda, mean_rest, var_rest = load_lambdas(mean_logit_ptr, var_logit_ptr, head, HAS_MEAN)
    height = valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    tokens = B.to(tl.int64) * H * W
    CHUNKS: tl.constexpr = N * ((C // N + BLOCK_D - 1) // BLOCK_D)
    d_gamma = tl.zeros([BLOCK_D], tl.float32)
    d_beta = tl.zeros([BLOCK_D], tl.float32)
    d_means = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)  # of each window's mixed mean and variance
    d_vars = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    d_mean_lambda = tl.zeros([BLOCK_I], tl.float32)
    d_var_lambda = tl.zeros([BLOCK_I], tl.float32)
    for t in range(POOL * POOL):
        token, real, inside, at, mask = window_tokens(image, i, column, t, H, W, height, width, c, real_c, POOL, C)
        x = tl.load(x_ptr + at, mask=mask, other=0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=mask, other=0).to(tl.float32)
        centered, inverse, mean_step, var_step = normalize_tokens(
            x, intra_ptr, token, real, tokens, mean, var, shift, mean_lambda, var_lambda, inside, eps, HAS_MEAN
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
        tl.store(direct_ptr + at, d_x, mask=mask)
        sums = token_sums_ptr + token * CHUNKS + chunk
        tl.store(sums, -tl.sum(tl.where(inside, mean_lambda, 1.0) * d_x, axis=1), mask=real)
        tl.store(sums + tokens * CHUNKS, tl.sum(tl.where(inside, var_lambda, 1.0) * d_var, axis=1), mask=real)

    d_square = tl.where(raw_var >= 0, var_rest * d_vars, 0)
    d_mean = mean_rest * d_means - 2 * mean * d_square
    out = grads_ptr + start + line_offsets(i, c, tl.cdiv(W, POOL), 1, C)
    mask = (i < tl.cdiv(H, POOL))[:, None] & real_c[None, :]
    tl.store(out, d_mean, mask=mask)
    tl.store(out + size, d_square, mask=mask)

    partial = partial_ptr + tl.program_id(0).to(tl.int64) * (2 * BLOCK_D + 4)
    d = tl.arange(0, BLOCK_D)
    tl.store(partial + d, d_gamma)
    tl.store(partial + BLOCK_D + d, d_beta)
    partial += 2 * BLOCK_D
    tl.store(partial, tl.sum(d_mean_lambda, axis=0) * mean_lambda * mean_rest)
    tl.store(partial + 1, tl.sum(d_var_lambda, axis=0) * var_lambda * var_rest)
    tl.store(partial + 2, tl.sum(d_mean * a1_mean + d_square * a1_square))
    tl.store(partial + 3, tl.sum(d_mean * a3_mean + d_square * a3_square))
