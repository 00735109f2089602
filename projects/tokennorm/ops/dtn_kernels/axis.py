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
def axis_table(image, head, h, w, start, N: tl.constexpr, HAS_VALID: tl.constexpr):
    """Index of a head's first entry for an axis in a table of `rows` or `bands`. `start` is 0 for x, w for y."""
    table = head * (w + h) + start
    if HAS_VALID:
        table += image * N * (w + h)
    return table


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
def loop_bounds(bands_ptr, plane, index, size):
    """The first and the last position in the union of the bands of these rows (or columns)."""
    first = tl.load(bands_ptr + index, mask=index < size, other=2147483647)
    last = tl.load(bands_ptr + plane + index, mask=index < size, other=-1)
    return tl.min(first, axis=0), tl.max(last, axis=0)


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


# ---- the part of the tensors that a program works on ----


@triton.jit
def channel_chunk(program, C: tl.constexpr, N: tl.constexpr, BLOCK_D: tl.constexpr):
    """The program's chunk: its number, head, channels, the mask of them, and the program's number without the chunk."""
    D: tl.constexpr = C // N
    BLOCKS: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    chunk = program % (N * BLOCKS)
    head = chunk // BLOCKS
    d = (chunk % BLOCKS) * BLOCK_D + tl.arange(0, BLOCK_D)
    return chunk, head, head * D + d, d < D, program // (N * BLOCKS)


@triton.jit
def row_block(program, h, w, BLOCK_I: tl.constexpr):
    """Image, row of the grid counted over all images, and x positions, of a program that works along x."""
    blocks = tl.cdiv(w, BLOCK_I)
    line = program // blocks
    return line // h, line, (program % blocks) * BLOCK_I + tl.arange(0, BLOCK_I)


@triton.jit
def column_block(program, h, w, BLOCK_I: tl.constexpr):
    """Image, x and y positions of a program that works along y. Neighboring programs read the same rows."""
    blocks = tl.cdiv(h, BLOCK_I)
    image = program // (blocks * w)
    block = (program // w) % blocks
    return image, program % w, block * BLOCK_I + tl.arange(0, BLOCK_I)


@triton.jit
def window_token(image, window_y, window_x, t, H, W, POOL: tl.constexpr):
    """Row, column and index of token t in each window, and whether the grid has it."""
    row = window_y * POOL + t // POOL
    column = window_x * POOL + t % POOL
    return row, column, (image.to(tl.int64) * H + row) * W + column, (row < H) & (column < W)
