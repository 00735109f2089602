"""The part of the tensors that a program works on."""

import triton
import triton.language as tl


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
