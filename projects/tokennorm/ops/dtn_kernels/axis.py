"""Positional weights along one axis: a row i of Px or Py is exp(e_ij) / Z_i.

The exponent is relative to the largest weight of the row, at position p:

    e_ij = a1 ((j - i)^2 - (p - i)^2) + a2 (j - p) = (j - p) (a1 (j + p - 2 i) + a2)

This form loses no digits to large squares. Positions below e = LIGHTEST are left out: together they weigh less than
float32 resolves. `prepare_kernel` stores Z and the band of each row, which is its first and last position with weight,
and the band of each column. A program loops over the union of the bands of its rows. That is a narrow band for a1 < 0,
one end of the axis for a1 > 0, and the whole axis near zero, with the same code.

On the y axis a3 replaces a2.
"""

import triton
import triton.language as tl

LIGHTEST: tl.constexpr = tl.constexpr(-22.2)  # e^-22.2 = 2^-32
# Products of float32 on tensor cores in three passes of TF32. Plain TF32 would leave ten bits.
PRECISION: tl.constexpr = tl.constexpr('tf32x3')


@triton.jit
def valid_tokens(valid_ptr, image, column, size, HAS_VALID: tl.constexpr):
    """Number of the `size` tokens along an axis that are image. Column 0 of `valid` is the height, 1 the width."""
    if HAS_VALID:
        size = tl.minimum(tl.maximum(tl.load(valid_ptr + 2 * image + column).to(tl.int32), 1), size)
    return size


@triton.jit
def axis_parameters(position_ptr, valid_ptr, image, head, size, axis, POOL: tl.constexpr, HAS_VALID: tl.constexpr):
    """a1, a2 (axis 0: x) or a3 (axis 1: y), and the number of pooled tokens along the axis that are image."""
    a1 = tl.load(position_ptr + 3 * head).to(tl.float32)
    slope = tl.load(position_ptr + 3 * head + 1 + axis).to(tl.float32)
    return a1, slope, tl.cdiv(valid_tokens(valid_ptr, image, 1 - axis, size, HAS_VALID), POOL)


@triton.jit
def peak_of(i, a1, slope, length):
    """Position of row i's largest weight: the parabola's vertex, or an end if it opens upwards or is straight."""
    last = length - 1
    concave = a1 < -1e-20
    vertex = i.to(tl.float32) - slope / (2 * tl.where(concave, a1, -1.0))
    vertex = tl.floor(tl.minimum(tl.maximum(vertex, 0.0), last.to(tl.float32)) + 0.5).to(tl.int32)
    end = tl.where(a1 * (last - 2 * i).to(tl.float32) + slope > 0, last, 0)
    return tl.where(concave, vertex, end)


@triton.jit
def exponents(i, j, peak, a1, slope):
    return (j - peak).to(tl.float32) * (a1 * (j + peak - 2 * i).to(tl.float32) + slope)


@triton.jit
def weights(i, j, rows_ptr, size, a1, slope, length):
    """P_ij. One of i and j is a column vector, the other a row vector. The axis has `size` rows, of which `length`
    positions are image.
    """
    peak = peak_of(i, a1, slope, length)
    scale = tl.load(rows_ptr + i, mask=i < size, other=0)
    e = tl.where((j < length) & (i < size), exponents(i, j, peak, a1, slope), float('-inf'))
    return tl.exp(e) * scale


@triton.jit
def position_factors(i, j, rows_ptr, size, plane, a1, slope, length):
    """d log P_ij with respect to a1 and to a2: f_ij - sum_k P_ik f_ik with f = (j - i)^2 and f = j - i.

    Both are computed relative to the peak p, where the weights are: with u = j - p,
    (j - i)^2 = (p - i)^2 + 2 (p - i) u + u^2.
    """
    mean = tl.load(rows_ptr + plane + i, mask=i < size, other=0)
    square = tl.load(rows_ptr + 2 * plane + i, mask=i < size, other=0)
    peak = peak_of(i, a1, slope, length)
    u = (j - peak).to(tl.float32)
    linear = u - mean
    return 2 * (peak - i).to(tl.float32) * linear + (u * u - square), linear


# ---- The part of the tensors that a program works on


@triton.jit
def line_of_program(
    B, H, W,
    C: tl.constexpr, N: tl.constexpr, POOL: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr,
    AXIS: tl.constexpr,
):  # fmt: skip
    """The program's chunk, its head, its channels and the mask of them; then its part of the grid (B, h, w).

    That is BLOCK_I windows along x (AXIS 0) or y (AXIS 1): the image, the row or column that they are in, and their
    positions in it. The last two results are the index of the first element of this row or column in a plane
    (B, h, w, C), and the size of a plane.
    """
    D: tl.constexpr = C // N
    BLOCKS: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    chunk = tl.program_id(0) % (N * BLOCKS)
    program = tl.program_id(0) // (N * BLOCKS)
    head = chunk // BLOCKS
    d = (chunk % BLOCKS) * BLOCK_D + tl.arange(0, BLOCK_D)
    h = tl.cdiv(H, POOL)
    w = tl.cdiv(W, POOL)
    if AXIS == 0:
        blocks = tl.cdiv(w, BLOCK_I)
        block = program % blocks
        image = program // blocks // h
        line = program // blocks % h
        start = (image.to(tl.int64) * h + line) * w * C
    else:  # neighboring programs read the same rows
        blocks = tl.cdiv(h, BLOCK_I)
        image = program // (blocks * w)
        block = (program // w) % blocks
        line = program % w
        start = (image.to(tl.int64) * h * w + line) * C
    i = block * BLOCK_I + tl.arange(0, BLOCK_I)
    return chunk, head, head * D + d, d < D, image, line, i, start, B.to(tl.int64) * h * w * C


@triton.jit
def line_offsets(i, c, w, AXIS: tl.constexpr, C: tl.constexpr):
    """Indices of channels c of windows i in a row (AXIS 0) or column (AXIS 1), from its first element on."""
    if AXIS == 0:
        offsets = i[:, None] * C + c[None, :]
    else:
        offsets = i.to(tl.int64)[:, None] * (w * C) + c[None, :]
    return offsets


@triton.jit
def window_tokens(image, window_y, window_x, t, H, W, height, width, c, real_c, POOL: tl.constexpr, C: tl.constexpr):
    """Token t in each window: its index, whether the grid has it, and whether it is image, (BLOCK_I, 1).

    Then the indices of its channels, and the mask of those that exist, (BLOCK_I, BLOCK_D).
    """
    row = window_y * POOL + t // POOL
    column = window_x * POOL + t % POOL
    token = (image.to(tl.int64) * H + row) * W + column
    real = (row < H) & (column < W)
    inside = ((row < height) & (column < width))[:, None]
    return token, real, inside, token[:, None] * C + c[None, :], real[:, None] & real_c[None, :]
