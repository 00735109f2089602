"""The last step of the forward pass: moments along y, the mixed statistics, and y."""

import triton
import triton.language as tl

from tokennorm.ops.dtn_kernels.along_y import apply_along_y
from tokennorm.ops.dtn_kernels.axis import axis_parameters, axis_table, loop_bounds, valid_tokens
from tokennorm.ops.dtn_kernels.programs import channel_chunk, column_block, window_token


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
