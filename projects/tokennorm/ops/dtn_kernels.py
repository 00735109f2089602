"""Triton kernels of Dynamic Token Normalization over a grid; `dtn_triton` launches them. Needs Triton to import.

Letters: B images, H x W tokens, h x w cells (the tokens averaged POOL x POOL, themselves where POOL is 1), C channels,
N heads of D channels. A chunk is at most BLOCK_D channels of one head; there are G of them.

P of a head is Py (x) Px (see `dtn`). Every weight is computed where it is used, as exp(e) / Z with the exponent taken
relative to the heaviest cell of its row. For the columns j whose weight counts, no digits are lost to large squares:

    e_ij = a1 ((j - i)^2 - (p - i)^2) + a2 (j - p) = (j - p) (a1 (j + p - 2 i) + a2),    p the heaviest cell of row i

Columns below e = LIGHTEST are left out: together they weigh less than a float32 resolves. Each row knows its first and
last heavy column, each column its first and last row, and a program loops over the hull of its rows' intervals. That
is a narrow band for a1 below zero, one corner for a1 above it, and the whole axis near zero: the same code throughout.

Tensors that the kernels share, all contiguous:

    x, y, dy, dx  (B, H, W, C)         direct   (B, H, W, C)      what dx gets from the token itself
    intra         (2, B, H, W)         mean and variance of each token
    shift         (B, C)               a value typical of the channel, taken off before squaring
    pooled        (B, h, w, C)         cells, the shift taken off; only where POOL > 1
    moments       (2, B, h, w, C)      P-weighted x - shift and its square, along x only; the backward
                                       pass then puts the gradients with respect to them here
    grads         (2, B, h, w, C)      gradients of the two moments over both axes
    token_sums    (2, B, H, W, G)      gradients of each token's mean and variance
    rows          (3, V, N, w + h)     1 / Z, mean of (j - p) and of (j - p)^2; x axis first, V = B if `valid` else 1
    bands         (4, V, N, w + h)     first and last heavy column of a row, first and last row of a column

`valid` (B, 2) holds the height and width of each image in tokens; None means that all of the grid is image.
"""

import triton
import triton.language as tl

LIGHTEST: tl.constexpr = tl.constexpr(-22.2)  # e^-22.2 = 2^-32
# Products of float32 on tensor cores in three passes of TF32; plain TF32 would leave ten bits.
PRECISION: tl.constexpr = tl.constexpr('tf32x3')
SAMPLES: tl.constexpr = tl.constexpr(8)  # the shift averages SAMPLES x SAMPLES tokens spread over the image


@triton.jit
def _valid_tokens(valid_ptr, image, column, size, HAS_VALID: tl.constexpr):
    """How many of `size` tokens along an axis are image; column 0 of `valid` is height, 1 width."""
    if HAS_VALID:
        size = tl.minimum(tl.maximum(tl.load(valid_ptr + 2 * image + column).to(tl.int32), 1), size)
    return size


@triton.jit
def _axis(position_ptr, valid_ptr, image, head, size, axis, POOL: tl.constexpr, HAS_VALID: tl.constexpr):
    """a1, a2 (axis 0: x) or a3 (axis 1: y), and how many cells of the axis are image."""
    a1 = tl.load(position_ptr + 3 * head).to(tl.float32)
    slope = tl.load(position_ptr + 3 * head + 1 + axis).to(tl.float32)
    return a1, slope, tl.cdiv(_valid_tokens(valid_ptr, image, 1 - axis, size, HAS_VALID), POOL)


@triton.jit
def _peak(i, a1, slope, cells):
    """The heaviest column of row i: the parabola's vertex, or an end where it opens upwards or is straight."""
    last = cells - 1
    concave = a1 < -1e-20
    vertex = i.to(tl.float32) - slope / (2 * tl.where(concave, a1, -1.0))
    vertex = tl.floor(tl.minimum(tl.maximum(vertex, 0.0), last.to(tl.float32)) + 0.5).to(tl.int32)
    end = tl.where(a1 * (last - 2 * i).to(tl.float32) + slope > 0, last, 0)
    return tl.where(concave, vertex, end)


@triton.jit
def _exponents(i, j, peak, a1, slope):
    return (j - peak).to(tl.float32) * (a1 * (j + peak - 2 * i).to(tl.float32) + slope)


@triton.jit
def _weights(i, j, rows_ptr, table, size, a1, slope, cells):
    """P_ij; i and j are a column and a row vector, either way round. Rows end at `size`."""
    peak = _peak(i, a1, slope, cells)
    scale = tl.load(rows_ptr + table + i, mask=i < size, other=0)
    exponents = tl.where((j < cells) & (i < size), _exponents(i, j, peak, a1, slope), float('-inf'))
    return tl.exp(exponents) * scale


@triton.jit
def _hull(bands_ptr, plane, table, index, size):
    """The smallest first and the largest last entry of a block of rows (or columns): bounds of a loop."""
    first = tl.load(bands_ptr + table + index, mask=index < size, other=2147483647)
    last = tl.load(bands_ptr + plane + table + index, mask=index < size, other=-1)
    return tl.min(first, axis=0), tl.max(last, axis=0)


@triton.jit
def _position_factors(i, j, rows_ptr, table, size, plane, a1, slope, cells):
    """d log P_ij with respect to a1 and to a2: f_ij - sum_k P_ik f_ik with f = (j - i)^2 and f = j - i.

    Both are taken relative to the peak p, where the weights are: with u = j - p, (j - i)^2 = (p - i)^2 + 2 (p - i) u +
    u^2.
    """
    mean = tl.load(rows_ptr + plane + table + i, mask=i < size, other=0)
    square = tl.load(rows_ptr + 2 * plane + table + i, mask=i < size, other=0)
    peak = _peak(i, a1, slope, cells)
    u = (j - peak).to(tl.float32)
    linear = u - mean
    return 2 * (peak - i).to(tl.float32) * linear + (u * u - square), linear


@triton.jit
def _chunk(program, C: tl.constexpr, N: tl.constexpr, BLOCK_D: tl.constexpr):
    """The program's chunk: number, head, channels, which of them exist, and the program's number without the chunk."""
    D: tl.constexpr = C // N
    BLOCKS: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    chunk = program % (N * BLOCKS)
    head = chunk // BLOCKS
    d = (chunk % BLOCKS) * BLOCK_D + tl.arange(0, BLOCK_D)
    return chunk, head, head * D + d, d < D, program // (N * BLOCKS)


@triton.jit
def _token_statistics(program, x_ptr, intra_ptr, tokens, C: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    token = program.to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.arange(0, BLOCK_C)
    real = (token < tokens)[:, None] & (c < C)[None, :]
    x = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=real, other=0).to(tl.float32)
    mean = tl.sum(x, axis=1) / C
    x = tl.where(real, x - mean[:, None], 0)
    tl.store(intra_ptr + token, mean, mask=token < tokens)
    tl.store(intra_ptr + tokens + token, tl.sum(x * x, axis=1) / C, mask=token < tokens)


@triton.jit
def _axis_tables(
    program,
    position_ptr,
    valid_ptr,
    rows_ptr,
    bands_ptr,
    plane,
    H,
    W,
    N: tl.constexpr,
    POOL: tl.constexpr,
    HAS_VALID: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
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
    a1, slope, cells = _axis(position_ptr, valid_ptr, image, head, tokens, axis, POOL, HAS_VALID)
    table = (image * N + head) * (w + h) + axis * w

    row = (block - axis * blocks_x) * BLOCK_S + tl.arange(0, BLOCK_S)
    peak = _peak(row, a1, slope, cells)
    z = tl.zeros([BLOCK_S], tl.float32)
    mean = tl.zeros([BLOCK_S], tl.float32)
    square = tl.zeros([BLOCK_S], tl.float32)
    first_column = tl.full([BLOCK_S], 2147483647, tl.int32)
    last_column = tl.full([BLOCK_S], -1, tl.int32)
    first_row = tl.full([BLOCK_S], 2147483647, tl.int32)
    last_row = tl.full([BLOCK_S], -1, tl.int32)
    for start in range(0, size, BLOCK_S):
        other = start + tl.arange(0, BLOCK_S)
        e = _exponents(row[:, None], other[None, :], peak[:, None], a1, slope)
        real = (other < cells)[None, :]
        p = tl.exp(tl.where(real, e, float('-inf')))
        u = (other[None, :] - peak[:, None]).to(tl.float32)
        z += tl.sum(p, axis=1)
        mean += tl.sum(p * u, axis=1)
        square += tl.sum(p * u * u, axis=1)
        heavy = real & (e > LIGHTEST)
        first_column = tl.minimum(first_column, tl.min(tl.where(heavy, other[None, :], 2147483647), axis=1))
        last_column = tl.maximum(last_column, tl.max(tl.where(heavy, other[None, :], -1), axis=1))
        # The same table read by columns: `row` is the column, `other` runs over the rows.
        others_peak = _peak(other, a1, slope, cells)
        e = _exponents(other[None, :], row[:, None], others_peak[None, :], a1, slope)
        heavy = (e > LIGHTEST) & (row < cells)[:, None] & (other < size)[None, :]
        first_row = tl.minimum(first_row, tl.min(tl.where(heavy, other[None, :], 2147483647), axis=1))
        last_row = tl.maximum(last_row, tl.max(tl.where(heavy, other[None, :], -1), axis=1))
    real = row < size
    tl.store(rows_ptr + table + row, 1 / z, mask=real)
    tl.store(rows_ptr + plane + table + row, mean / z, mask=real)
    tl.store(rows_ptr + 2 * plane + table + row, square / z, mask=real)
    tl.store(bands_ptr + table + row, first_column, mask=real)
    tl.store(bands_ptr + plane + table + row, last_column, mask=real)
    tl.store(bands_ptr + 2 * plane + table + row, first_row, mask=real)
    tl.store(bands_ptr + 3 * plane + table + row, last_row, mask=real)


@triton.jit
def _channel_shift(
    program,
    x_ptr,
    valid_ptr,
    shift_ptr,
    H,
    W,
    C: tl.constexpr,
    HAS_VALID: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    blocks: tl.constexpr = (C + BLOCK_S - 1) // BLOCK_S
    image = program // blocks
    c = (program % blocks) * BLOCK_S + tl.arange(0, BLOCK_S)
    sample = tl.arange(0, SAMPLES * SAMPLES)
    y = ((2 * (sample // SAMPLES) + 1) * _valid_tokens(valid_ptr, image, 0, H, HAS_VALID)) // (2 * SAMPLES)
    x = ((2 * (sample % SAMPLES) + 1) * _valid_tokens(valid_ptr, image, 1, W, HAS_VALID)) // (2 * SAMPLES)
    token = (image.to(tl.int64) * H + y) * W + x
    tokens = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=(c < C)[None, :], other=0).to(tl.float32)
    tl.store(shift_ptr + image * C + c, tl.sum(tokens, axis=0) / (SAMPLES * SAMPLES), mask=c < C)


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def prepare_kernel(
    x_ptr,
    position_ptr,
    valid_ptr,
    intra_ptr,
    rows_ptr,
    bands_ptr,
    shift_ptr,
    B,
    H,
    W,
    plane,
    C: tl.constexpr,
    N: tl.constexpr,
    POOL: tl.constexpr,
    HAS_VALID: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """Three small jobs in one launch: `intra` (reads all of x), `rows` and `bands`, `shift`."""
    tokens = B.to(tl.int64) * H * W
    token_programs = tl.cdiv(tokens, BLOCK_T).to(tl.int32)
    tables = N * (tl.cdiv(tl.cdiv(W, POOL), BLOCK_S) + tl.cdiv(tl.cdiv(H, POOL), BLOCK_S))
    if HAS_VALID:
        tables *= B
    program = tl.program_id(0)
    if program < token_programs:
        _token_statistics(program, x_ptr, intra_ptr, tokens, C, BLOCK_T, BLOCK_C)
    elif program < token_programs + tables:
        program -= token_programs
        _axis_tables(program, position_ptr, valid_ptr, rows_ptr, bands_ptr, plane, H, W, N, POOL, HAS_VALID, BLOCK_S)
    else:
        program -= token_programs + tables
        _channel_shift(program, x_ptr, valid_ptr, shift_ptr, H, W, C, HAS_VALID, BLOCK_S)


@triton.jit(do_not_specialize=['H', 'W'])
def pool_kernel(
    x_ptr,
    valid_ptr,
    shift_ptr,
    pooled_ptr,
    H,
    W,
    C: tl.constexpr,
    POOL: tl.constexpr,
    HAS_VALID: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """`pooled`: the mean of each cell's valid tokens, the shift taken off before adding. A cell of padding is zero."""
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    blocks = tl.cdiv(w, BLOCK_I)
    program = tl.program_id(0)
    line = program // blocks  # a row of cells of one image
    image = line // h
    y = line % h
    x = (program % blocks) * BLOCK_I + tl.arange(0, BLOCK_I)
    c = tl.arange(0, BLOCK_C)
    height = _valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = _valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    shift = tl.load(shift_ptr + image * C + c, mask=c < C, other=0)

    total = tl.zeros([BLOCK_I, BLOCK_C], tl.float32)
    for t in range(POOL * POOL):
        row = y * POOL + t // POOL
        column = x * POOL + t % POOL
        real = ((row < height) & (column < width))[:, None] & (c < C)[None, :]
        base = x_ptr + (image.to(tl.int64) * H + row) * W * C
        token = tl.load(base + column[:, None] * C + c[None, :], mask=real, other=0).to(tl.float32)
        total += tl.where(real, token - shift[None, :], 0)
    count = _count(y, height, POOL) * _count(x, width, POOL)
    real = (x < w)[:, None] & (c < C)[None, :]
    tl.store(pooled_ptr + line.to(tl.int64) * w * C + x[:, None] * C + c[None, :], total / count[:, None], mask=real)


@triton.jit
def _count(cell, tokens, POOL: tl.constexpr):
    """Valid tokens of a cell along one axis, as a float; 1 where there are none."""
    return tl.minimum(tl.maximum(tokens - cell * POOL, 1), POOL).to(tl.float32)


@triton.jit
def _load_shifted(pointers, mask, shift, POOL: tl.constexpr):
    """Cells of x - shift, zero outside the mask. `pooled` has its shift off already."""
    cells = tl.load(pointers, mask=mask, other=0).to(tl.float32)
    if POOL == 1:
        cells = tl.where(mask, cells - shift[None, :], 0)
    return cells


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def along_x_kernel(
    cells_ptr,
    shift_ptr,
    position_ptr,
    valid_ptr,
    rows_ptr,
    bands_ptr,
    moments_ptr,
    B,
    H,
    W,
    plane,
    C: tl.constexpr,
    N: tl.constexpr,
    POOL: tl.constexpr,
    HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """`moments` = Px (x - shift) and Px (x - shift)^2. A program: BLOCK_I cells of one row, one chunk."""
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    _, head, c, real_c, program = _chunk(tl.program_id(0), C, N, BLOCK_D)
    blocks = tl.cdiv(w, BLOCK_I)
    line = program // blocks
    image = line // h
    i = (program % blocks) * BLOCK_I + tl.arange(0, BLOCK_I)
    a1, slope, columns = _axis(position_ptr, valid_ptr, image, head, W, 0, POOL, HAS_VALID)
    table = head * (w + h)
    if HAS_VALID:
        table += image * N * (w + h)
    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)

    start = line.to(tl.int64) * w * C
    mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    first, last = _hull(bands_ptr, plane, table, i, w)
    for k0 in range(first, last + 1, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        weights = _weights(i[:, None], k[None, :], rows_ptr, table, w, a1, slope, columns)
        mask = (k < columns)[:, None] & real_c[None, :]
        x = _load_shifted(cells_ptr + start + k[:, None] * C + c[None, :], mask, shift, POOL)
        mean = tl.dot(weights, x, mean, input_precision=PRECISION)
        square = tl.dot(weights, x * x, square, input_precision=PRECISION)

    out = moments_ptr + start + i[:, None] * C + c[None, :]
    mask = (i < w)[:, None] & real_c[None, :]
    tl.store(out, mean, mask=mask)
    tl.store(out + B.to(tl.int64) * h * w * C, square, mask=mask)


@triton.jit
def _column_block(program, h, w, BLOCK_I: tl.constexpr):
    """Image, column of cells and rows of cells of a program that works along y; neighbours share rows."""
    blocks = tl.cdiv(h, BLOCK_I)
    image = program // (blocks * w)
    block = (program // w) % blocks
    return image, program % w, block * BLOCK_I + tl.arange(0, BLOCK_I)


@triton.jit
def _apply_along_y(
    moments_ptr,
    size,
    i,
    first,
    last,
    rows_ptr,
    table,
    h,
    w,
    a1,
    slope,
    rows,
    c,
    real_c,
    C: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Py times both planes of `moments` (the pointer stands at the column's first cell) for the rows of cells i."""
    mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    for k0 in range(first, last + 1, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        weights = _weights(i[:, None], k[None, :], rows_ptr, table, h, a1, slope, rows)
        mask = (k < rows)[:, None] & real_c[None, :]
        pointers = moments_ptr + k.to(tl.int64)[:, None] * (w * C) + c[None, :]
        mean = tl.dot(weights, tl.load(pointers, mask=mask, other=0), mean, input_precision=PRECISION)
        square = tl.dot(weights, tl.load(pointers + size, mask=mask, other=0), square, input_precision=PRECISION)
    return mean, square


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def normalize_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    mean_logit_ptr,
    var_logit_ptr,
    position_ptr,
    valid_ptr,
    intra_ptr,
    shift_ptr,
    rows_ptr,
    bands_ptr,
    moments_ptr,
    y_ptr,
    B,
    H,
    W,
    plane,
    eps,
    C: tl.constexpr,
    N: tl.constexpr,
    POOL: tl.constexpr,
    HAS_MEAN: tl.constexpr,
    HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Py times `moments`, and y of the cells' tokens. A program: BLOCK_I cells of one column, one chunk."""
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    _, head, c, real_c, program = _chunk(tl.program_id(0), C, N, BLOCK_D)
    image, column, i = _column_block(program, h, w, BLOCK_I)
    a1, slope, rows = _axis(position_ptr, valid_ptr, image, head, H, 1, POOL, HAS_VALID)
    table = head * (w + h) + w
    if HAS_VALID:
        table += image * N * (w + h)
    first, last = _hull(bands_ptr, plane, table, i, h)
    mean, square = _apply_along_y(
        moments_ptr + (image.to(tl.int64) * h * w + column) * C,
        B.to(tl.int64) * h * w * C,
        i,
        first,
        last,
        rows_ptr,
        table,
        h,
        w,
        a1,
        slope,
        rows,
        c,
        real_c,
        C,
        BLOCK_D,
        BLOCK_I,
        BLOCK_K,
    )
    var = tl.maximum(square - mean * mean, 0)

    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    gamma = tl.load(weight_ptr + c, mask=real_c, other=0).to(tl.float32)
    beta = tl.load(bias_ptr + c, mask=real_c, other=0).to(tl.float32)
    var_ratio = tl.sigmoid(tl.load(var_logit_ptr + head).to(tl.float32))
    if HAS_MEAN:
        mean_ratio = tl.sigmoid(tl.load(mean_logit_ptr + head).to(tl.float32))
    height = _valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = _valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    for t in range(POOL * POOL):
        row = i * POOL + t // POOL
        token_x = column * POOL + t % POOL
        real = (row < H) & (token_x < W)
        token = (image.to(tl.int64) * H + row) * W + token_x
        mask = real[:, None] & real_c[None, :]
        x = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=mask, other=0).to(tl.float32)
        token_mean = tl.load(intra_ptr + token, mask=real, other=0)[:, None]
        token_var = tl.load(intra_ptr + B.to(tl.int64) * H * W + token, mask=real, other=1)[:, None]
        inside = ((row < height) & (token_x < width))[:, None]
        if HAS_MEAN:
            # The difference first: what is left of a large offset is small.
            mixed = (x - shift[None, :]) - mean - mean_ratio * ((token_mean - shift[None, :]) - mean)
            centred = tl.where(inside, mixed, x - token_mean)
        else:
            centred = x - token_mean
        spread = tl.where(inside, var + var_ratio * (token_var - var), token_var)
        y = centred * tl.rsqrt(spread + eps) * gamma[None, :] + beta[None, :]
        tl.store(y_ptr + token[:, None] * C + c[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def normalize_backward_kernel(
    x_ptr,
    dy_ptr,
    weight_ptr,
    mean_logit_ptr,
    var_logit_ptr,
    position_ptr,
    valid_ptr,
    intra_ptr,
    shift_ptr,
    rows_ptr,
    bands_ptr,
    moments_ptr,
    grads_ptr,
    direct_ptr,
    token_sums_ptr,
    partial_ptr,
    B,
    H,
    W,
    plane,
    eps,
    C: tl.constexpr,
    N: tl.constexpr,
    POOL: tl.constexpr,
    HAS_MEAN: tl.constexpr,
    HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The statistics again, then back to the moments over both axes. A program as in `normalize_kernel`.

    Writes `direct`, `token_sums`, `grads` and the program's row of `partial` (programs, G, 2 BLOCK_D + 4): its sums for
    gamma, beta, the two logits, a1 (of the y axis) and a3.
    """
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    CHUNKS: tl.constexpr = N * ((C // N + BLOCK_D - 1) // BLOCK_D)
    chunk, head, c, real_c, program = _chunk(tl.program_id(0), C, N, BLOCK_D)
    image, column, i = _column_block(program, h, w, BLOCK_I)
    a1, slope, rows = _axis(position_ptr, valid_ptr, image, head, H, 1, POOL, HAS_VALID)
    table = head * (w + h) + w
    if HAS_VALID:
        table += image * N * (w + h)
    first, last = _hull(bands_ptr, plane, table, i, h)
    start = (image.to(tl.int64) * h * w + column) * C
    size = B.to(tl.int64) * h * w * C
    mean, square = _apply_along_y(
        moments_ptr + start,
        size,
        i,
        first,
        last,
        rows_ptr,
        table,
        h,
        w,
        a1,
        slope,
        rows,
        c,
        real_c,
        C,
        BLOCK_D,
        BLOCK_I,
        BLOCK_K,
    )
    raw_var = square - mean * mean
    var = tl.maximum(raw_var, 0)

    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    gamma = tl.load(weight_ptr + c, mask=real_c, other=0).to(tl.float32)
    var_ratio = tl.sigmoid(tl.load(var_logit_ptr + head).to(tl.float32))
    mean_ratio = 1.0
    if HAS_MEAN:
        mean_ratio = tl.sigmoid(tl.load(mean_logit_ptr + head).to(tl.float32))
    height = _valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = _valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    tokens = B.to(tl.int64) * H * W
    d_gamma = tl.zeros([BLOCK_D], tl.float32)
    d_beta = tl.zeros([BLOCK_D], tl.float32)
    d_means = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)  # of each cell, summed over its tokens
    d_vars = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    d_mean_ratio = tl.zeros([BLOCK_I], tl.float32)
    d_var_ratio = tl.zeros([BLOCK_I], tl.float32)
    for t in range(POOL * POOL):
        row = i * POOL + t // POOL
        token_x = column * POOL + t % POOL
        real = (row < H) & (token_x < W)
        token = (image.to(tl.int64) * H + row) * W + token_x
        mask = real[:, None] & real_c[None, :]
        x = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=mask, other=0).to(tl.float32)
        dy = tl.load(dy_ptr + token[:, None] * C + c[None, :], mask=mask, other=0).to(tl.float32)
        token_mean = tl.load(intra_ptr + token, mask=real, other=0)[:, None]
        token_var = tl.load(intra_ptr + tokens + token, mask=real, other=1)[:, None]
        # Tokens outside the image take their own statistics: lambda = 1, whatever the ratios are.
        inside = ((row < height) & (token_x < width))[:, None]
        if HAS_MEAN:
            mean_step = tl.where(inside, (token_mean - shift[None, :]) - mean, 0)
            mixed = (x - shift[None, :]) - mean - mean_ratio * mean_step
            centred = tl.where(inside, mixed, x - token_mean)
        else:
            centred = x - token_mean
        var_step = tl.where(inside, token_var - var, 0)
        inverse = tl.rsqrt(tl.where(inside, var + var_ratio * var_step, token_var) + eps)
        normalized = centred * inverse
        # dy is zero outside the mask, and with it everything below.
        d_gamma += tl.sum(dy * normalized, axis=0)
        d_beta += tl.sum(dy, axis=0)
        d_x = dy * gamma[None, :] * inverse
        d_var = -0.5 * d_x * normalized * inverse
        d_means -= tl.where(inside, d_x, 0)
        d_vars += tl.where(inside, d_var, 0)
        if HAS_MEAN:
            d_mean_ratio -= tl.sum(d_x * mean_step, axis=1)
        d_var_ratio += tl.sum(d_var * var_step, axis=1)
        tl.store(direct_ptr + token[:, None] * C + c[None, :], d_x, mask=mask)
        sums = token_sums_ptr + token * CHUNKS + chunk
        tl.store(sums, -tl.sum(tl.where(inside, mean_ratio, 1.0) * d_x, axis=1), mask=real)
        tl.store(sums + tokens * CHUNKS, tl.sum(tl.where(inside, var_ratio, 1.0) * d_var, axis=1), mask=real)

    d_square = tl.where(raw_var >= 0, (1 - var_ratio) * d_vars, 0)
    d_mean = (1 - mean_ratio) * d_means - 2 * mean * d_square
    out = grads_ptr + start + i.to(tl.int64)[:, None] * (w * C) + c[None, :]
    real_i = (i < h)[:, None] & real_c[None, :]
    tl.store(out, d_mean, mask=real_i)
    tl.store(out + size, d_square, mask=real_i)

    # dL/da1 and dL/da3: the gradients times dP/da applied to the moments.
    a1_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a1_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a3_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a3_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    for k0 in range(first, last + 1, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        weights = _weights(i[:, None], k[None, :], rows_ptr, table, h, a1, slope, rows)
        quadratic, linear = _position_factors(i[:, None], k[None, :], rows_ptr, table, h, plane, a1, slope, rows)
        mask = (k < rows)[:, None] & real_c[None, :]
        pointers = moments_ptr + start + k.to(tl.int64)[:, None] * (w * C) + c[None, :]
        means = tl.load(pointers, mask=mask, other=0)
        squares = tl.load(pointers + size, mask=mask, other=0)
        a1_mean = tl.dot(weights * quadratic, means, a1_mean, input_precision=PRECISION)
        a3_mean = tl.dot(weights * linear, means, a3_mean, input_precision=PRECISION)
        a1_square = tl.dot(weights * quadratic, squares, a1_square, input_precision=PRECISION)
        a3_square = tl.dot(weights * linear, squares, a3_square, input_precision=PRECISION)

    partial = partial_ptr + tl.program_id(0).to(tl.int64) * (2 * BLOCK_D + 4)
    d = tl.arange(0, BLOCK_D)
    tl.store(partial + d, d_gamma)
    tl.store(partial + BLOCK_D + d, d_beta)
    partial += 2 * BLOCK_D
    tl.store(partial, tl.sum(d_mean_ratio, axis=0) * mean_ratio * (1 - mean_ratio))
    tl.store(partial + 1, tl.sum(d_var_ratio, axis=0) * var_ratio * (1 - var_ratio))
    tl.store(partial + 2, tl.sum(d_mean * a1_mean + d_square * a1_square))
    tl.store(partial + 3, tl.sum(d_mean * a3_mean + d_square * a3_square))


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def back_along_y_kernel(
    grads_ptr,
    position_ptr,
    valid_ptr,
    rows_ptr,
    bands_ptr,
    moments_ptr,
    B,
    H,
    W,
    plane,
    C: tl.constexpr,
    N: tl.constexpr,
    POOL: tl.constexpr,
    HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """`moments` = Py^T times both planes of `grads`. A program: BLOCK_I cells of one column, one chunk."""
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    _, head, c, real_c, program = _chunk(tl.program_id(0), C, N, BLOCK_D)
    image, column, j = _column_block(program, h, w, BLOCK_I)
    a1, slope, rows = _axis(position_ptr, valid_ptr, image, head, H, 1, POOL, HAS_VALID)
    table = head * (w + h) + w
    if HAS_VALID:
        table += image * N * (w + h)
    first, last = _hull(bands_ptr + 2 * plane, plane, table, j, h)
    start = (image.to(tl.int64) * h * w + column) * C
    size = B.to(tl.int64) * h * w * C
    d_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    d_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    for i0 in range(first, last + 1, BLOCK_K):
        i = i0 + tl.arange(0, BLOCK_K)
        weights = _weights(i[None, :], j[:, None], rows_ptr, table, h, a1, slope, rows)
        mask = (i < h)[:, None] & real_c[None, :]
        pointers = grads_ptr + start + i.to(tl.int64)[:, None] * (w * C) + c[None, :]
        d_mean = tl.dot(weights, tl.load(pointers, mask=mask, other=0), d_mean, input_precision=PRECISION)
        d_square = tl.dot(weights, tl.load(pointers + size, mask=mask, other=0), d_square, input_precision=PRECISION)

    out = moments_ptr + start + j.to(tl.int64)[:, None] * (w * C) + c[None, :]
    mask = (j < h)[:, None] & real_c[None, :]
    tl.store(out, d_mean, mask=mask)
    tl.store(out + size, d_square, mask=mask)


@triton.jit(do_not_specialize=['B', 'H', 'W', 'plane'])
def back_along_x_kernel(
    x_ptr,
    cells_ptr,
    position_ptr,
    valid_ptr,
    intra_ptr,
    shift_ptr,
    rows_ptr,
    bands_ptr,
    moments_ptr,
    direct_ptr,
    token_sums_ptr,
    dx_ptr,
    partial_ptr,
    B,
    H,
    W,
    plane,
    C: tl.constexpr,
    N: tl.constexpr,
    POOL: tl.constexpr,
    HAS_VALID: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_G: tl.constexpr,
):
    """Px^T times `moments` (gradients by now), and the sum dx. A program: BLOCK_I cells of one row, one chunk.

    Its sums for a1 (of the x axis) and a2 are a row of `partial` (programs, G, 2).
    """
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    CHUNKS: tl.constexpr = N * ((C // N + BLOCK_D - 1) // BLOCK_D)
    _, head, c, real_c, program = _chunk(tl.program_id(0), C, N, BLOCK_D)
    blocks = tl.cdiv(w, BLOCK_I)
    line = program // blocks
    image = line // h
    y = line % h
    j = (program % blocks) * BLOCK_I + tl.arange(0, BLOCK_I)
    a1, slope, columns = _axis(position_ptr, valid_ptr, image, head, W, 0, POOL, HAS_VALID)
    table = head * (w + h)
    if HAS_VALID:
        table += image * N * (w + h)
    shift = tl.load(shift_ptr + image * C + c, mask=real_c, other=0)
    start = line.to(tl.int64) * w * C
    size = B.to(tl.int64) * h * w * C
    real_j = (j < columns)[:, None] & real_c[None, :]
    cells = _load_shifted(cells_ptr + start + j[:, None] * C + c[None, :], real_j, shift, POOL)

    d_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    d_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    # dP/da, transposed, applied to the gradients: with the cells they give dL/da1 and dL/da2.
    a1_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a1_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a2_mean = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    a2_square = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    first, last = _hull(bands_ptr + 2 * plane, plane, table, j, w)
    for i0 in range(first, last + 1, BLOCK_K):
        i = i0 + tl.arange(0, BLOCK_K)
        weights = _weights(i[None, :], j[:, None], rows_ptr, table, w, a1, slope, columns)
        mask = (i < w)[:, None] & real_c[None, :]
        pointers = moments_ptr + start + i[:, None] * C + c[None, :]
        d_means = tl.load(pointers, mask=mask, other=0)
        d_squares = tl.load(pointers + size, mask=mask, other=0)
        d_mean = tl.dot(weights, d_means, d_mean, input_precision=PRECISION)
        d_square = tl.dot(weights, d_squares, d_square, input_precision=PRECISION)
        quadratic, linear = _position_factors(i[None, :], j[:, None], rows_ptr, table, w, plane, a1, slope, columns)
        a1_mean = tl.dot(weights * quadratic, d_means, a1_mean, input_precision=PRECISION)
        a2_mean = tl.dot(weights * linear, d_means, a2_mean, input_precision=PRECISION)
        a1_square = tl.dot(weights * quadratic, d_squares, a1_square, input_precision=PRECISION)
        a2_square = tl.dot(weights * linear, d_squares, a2_square, input_precision=PRECISION)
    partial = partial_ptr + tl.program_id(0).to(tl.int64) * 2
    tl.store(partial, tl.sum(cells * (a1_mean + cells * a1_square)))
    tl.store(partial + 1, tl.sum(cells * (a2_mean + cells * a2_square)))

    height = _valid_tokens(valid_ptr, image, 0, H, HAS_VALID)
    width = _valid_tokens(valid_ptr, image, 1, W, HAS_VALID)
    count = _count(y, height, POOL) * _count(j, width, POOL)
    d_cells = (d_mean + 2 * cells * d_square) / count[:, None]
    g = tl.arange(0, BLOCK_G)
    tokens = B.to(tl.int64) * H * W
    for t in range(POOL * POOL):
        row = y * POOL + t // POOL
        token_x = j * POOL + t % POOL
        real = (row < H) & (token_x < W)
        token = (image.to(tl.int64) * H + row) * W + token_x
        mask = real[:, None] & real_c[None, :]
        x = tl.load(x_ptr + token[:, None] * C + c[None, :], mask=mask, other=0).to(tl.float32)
        dx = tl.load(direct_ptr + token[:, None] * C + c[None, :], mask=mask, other=0)
        dx += tl.where(((row < height) & (token_x < width))[:, None], d_cells, 0)
        sums = token_sums_ptr + token[:, None] * CHUNKS + g[None, :]
        mask_g = real[:, None] & (g < CHUNKS)[None, :]
        token_mean = tl.load(intra_ptr + token, mask=real, other=0)[:, None]
        d_token_mean = tl.sum(tl.load(sums, mask=mask_g, other=0), axis=1)[:, None]
        d_token_var = tl.sum(tl.load(sums + tokens * CHUNKS, mask=mask_g, other=0), axis=1)[:, None]
        dx += (d_token_mean + 2 * (x - token_mean) * d_token_var) / C
        tl.store(dx_ptr + token[:, None] * C + c[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def parameters_kernel(
    sums_ptr,
    sums_x_ptr,
    weight_ptr,
    bias_ptr,
    mean_logit_ptr,
    var_logit_ptr,
    position_ptr,
    C: tl.constexpr,
    N: tl.constexpr,
    HAS_MEAN: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """The parameters' gradients from the summed `partial`s, (G, 2 BLOCK_D + 4) and (G, 2). A program: one head."""
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
