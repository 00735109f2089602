"""Small inputs of the other kernels: statistics and means of tokens, tables of the axes, shifts of channels."""

import triton
import triton.language as tl

from tokennorm.ops.dtn_kernels.axis import LIGHTEST, axis_parameters, exponents, peak_of, valid_tokens, window_tokens

SAMPLES: tl.constexpr = tl.constexpr(8)  # the shift averages SAMPLES x SAMPLES tokens spread over the image


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def prepare_kernel(
    x_ptr, position_ptr, valid_ptr,
    intra_ptr, rows_ptr, bands_ptr, shift_ptr,
    B, H, W, plane,
    C: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, HAS_VALID: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Three small jobs in one launch: writes `intra` (which reads all of x), `rows` and `bands`, and `shift`."""
    tokens = B.to(tl.int64) * H * W
    token_programs = tl.cdiv(tokens, BLOCK_T).to(tl.int32)
    tables = N * (tl.cdiv(tl.cdiv(W, POOL), BLOCK_S) + tl.cdiv(tl.cdiv(H, POOL), BLOCK_S))
    if HAS_VALID:
        tables *= B
    program = tl.program_id(0)
    if program < token_programs:
        token_statistics(program, x_ptr, intra_ptr, tokens, C, BLOCK_T, BLOCK_C)
    elif program < token_programs + tables:
        program -= token_programs
        axis_tables(program, position_ptr, valid_ptr, rows_ptr, bands_ptr, plane, H, W, N, POOL, HAS_VALID, BLOCK_S)
    else:
        program -= token_programs + tables
        channel_shift(program, x_ptr, valid_ptr, shift_ptr, H, W, C, HAS_VALID, BLOCK_S)


@triton.jit
def token_statistics(program, x_ptr, intra_ptr, tokens, C: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    """Mean and variance of BLOCK_T tokens."""
    token = program.to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.arange(0, BLOCK_C)
    real = (token < tokens)[:, None] & (c < C)[None, :]
    x = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=real, other=0).to(tl.float32)
    mean = tl.sum(x, axis=1) / C
    x = tl.where(real, x - mean[:, None], 0)
    tl.store(intra_ptr + token, mean, mask=token < tokens)
    tl.store(intra_ptr + tokens + token, tl.sum(x * x, axis=1) / C, mask=token < tokens)


@triton.jit
def axis_tables(
    program, position_ptr, valid_ptr,
    rows_ptr, bands_ptr,
    plane, H, W, N: tl.constexpr, POOL: tl.constexpr, HAS_VALID: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """`rows` and `bands` of BLOCK_S positions on one axis, for one head."""
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    blocks_x = tl.cdiv(w, BLOCK_S)
    blocks = blocks_x + tl.cdiv(h, BLOCK_S)
    block = program % blocks
    head = (program // blocks) % N
    image = program // (blocks * N)
    axis = (block >= blocks_x).to(tl.int32)
    size = tl.where(axis == 0, w, h)
    tokens = tl.where(axis == 0, W, H)
    a1, slope, length = axis_parameters(position_ptr, valid_ptr, image, head, tokens, axis, POOL, HAS_VALID)
    table = (image * N + head) * (w + h) + axis * w
    position = (block - axis * blocks_x) * BLOCK_S + tl.arange(0, BLOCK_S)
    real = position < size

    peak = peak_of(position, a1, slope, length)
    z = tl.zeros([BLOCK_S], tl.float32)
    mean = tl.zeros([BLOCK_S], tl.float32)  # sums of exp(e) (j - p) and exp(e) (j - p)^2
    square = tl.zeros([BLOCK_S], tl.float32)
    first_column = tl.full([BLOCK_S], 2147483647, tl.int32)
    last_column = tl.full([BLOCK_S], -1, tl.int32)
    first_row = tl.full([BLOCK_S], 2147483647, tl.int32)
    last_row = tl.full([BLOCK_S], -1, tl.int32)
    for start in range(0, size, BLOCK_S):
        j = (start + tl.arange(0, BLOCK_S))[None, :]
        # The positions are rows i of P.
        e = exponents(position[:, None], j, peak[:, None], a1, slope)
        p = tl.exp(tl.where(j < length, e, float('-inf')))
        u = (j - peak[:, None]).to(tl.float32)
        z += tl.sum(p, axis=1)
        mean += tl.sum(p * u, axis=1)
        square += tl.sum(p * u * u, axis=1)
        heavy = (j < length) & (e > LIGHTEST)
        first_column = tl.minimum(first_column, tl.min(tl.where(heavy, j, 2147483647), axis=1))
        last_column = tl.maximum(last_column, tl.max(tl.where(heavy, j, -1), axis=1))
        # The positions are columns of P, and j the rows.
        e = exponents(j, position[:, None], peak_of(j, a1, slope, length), a1, slope)
        heavy = (e > LIGHTEST) & (position < length)[:, None] & (j < size)
        first_row = tl.minimum(first_row, tl.min(tl.where(heavy, j, 2147483647), axis=1))
        last_row = tl.maximum(last_row, tl.max(tl.where(heavy, j, -1), axis=1))
    tl.store(rows_ptr + table + position, 1 / z, mask=real)
    tl.store(rows_ptr + plane + table + position, mean / z, mask=real)
    tl.store(rows_ptr + 2 * plane + table + position, square / z, mask=real)
    tl.store(bands_ptr + table + position, first_column, mask=real)
    tl.store(bands_ptr + plane + table + position, last_column, mask=real)
    tl.store(bands_ptr + 2 * plane + table + position, first_row, mask=real)
    tl.store(bands_ptr + 3 * plane + table + position, last_row, mask=real)


@triton.jit
def channel_shift(
    program, x_ptr, valid_ptr, shift_ptr, H, W, C: tl.constexpr, HAS_VALID: tl.constexpr, BLOCK_S: tl.constexpr
):
    """The shift of BLOCK_S channels of one image."""
    blocks: tl.constexpr = (C + BLOCK_S - 1) // BLOCK_S
    image = program // blocks
    c = (program % blocks) * BLOCK_S + tl.arange(0, BLOCK_S)
    sample = tl.arange(0, SAMPLES * SAMPLES)
    y = ((2 * (sample // SAMPLES) + 1) * valid_tokens(valid_ptr, image, 0, H, HAS_VALID)) // (2 * SAMPLES)
    x = ((2 * (sample % SAMPLES) + 1) * valid_tokens(valid_ptr, image, 1, W, HAS_VALID)) // (2 * SAMPLES)
    token = (image.to(tl.int64) * H + y) * W + x
    tokens = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=(c < C)[None, :], other=0).to(tl.float32)
    tl.store(shift_ptr + image * C + c, tl.sum(tokens, axis=0) / (SAMPLES * SAMPLES), mask=c < C)


@triton.jit(do_not_specialize=['H', 'W'])
def pool_kernel(
    x_ptr, valid_ptr, shift_ptr,
    pooled_ptr,
    H, W,
    C: tl.constexpr, POOL: tl.constexpr, HAS_VALID: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Writes `pooled`: the mean of each window's valid tokens, minus the shift. Windows of padding become zero."""
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    blocks = tl.cdiv(w, BLOCK_I)
    program = tl.program_id(0)
    line = program // blocks  # a row of windows of one image
    image = line // h
    y = line % h
    x = (program % blocks) * BLOCK_I + tl.arange(0, BLOCK_I)
    c = tl.arange(0, BLOCK_C)
    height = valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    shift = tl.load(shift_ptr + image * C + c, mask=c < C, other=0)

    total = tl.zeros([BLOCK_I, BLOCK_C], tl.float32)
    for t in range(POOL * POOL):
        _, _, inside, at, _ = window_tokens(image, y, x, t, H, W, height, width, c, c < C, POOL, C)
        real = inside & (c < C)[None, :]
        token = tl.load(x_ptr + at, mask=real, other=0).to(tl.float32)
        total += tl.where(real, token - shift[None, :], 0)
    count = window_count(y, height, POOL) * window_count(x, width, POOL)
    real = (x < w)[:, None] & (c < C)[None, :]
    tl.store(pooled_ptr + line.to(tl.int64) * w * C + x[:, None] * C + c[None, :], total / count[:, None], mask=real)


@triton.jit
def window_count(window, tokens, POOL: tl.constexpr):
    """Number of a window's valid tokens along one axis, as a float; 1 if it has none."""
    return tl.minimum(tl.maximum(tokens - window * POOL, 1), POOL).to(tl.float32)


@triton.jit
def load_shifted(pointers, mask, shift, POOL: tl.constexpr):
    """Pooled tokens minus the shift, zero outside the mask. `pool_kernel` has subtracted it already."""
    tokens = tl.load(pointers, mask=mask, other=0).to(tl.float32)
    if POOL == 1:
        tokens = tl.where(mask, tokens - shift[None, :], 0)
    return tokens
