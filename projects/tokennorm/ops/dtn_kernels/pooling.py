"""Pooled tokens: means over windows of POOL x POOL tokens."""

import triton
import triton.language as tl

from tokennorm.ops.dtn_kernels.axis import valid_tokens


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
        row = y * POOL + t // POOL
        column = x * POOL + t % POOL
        real = ((row < height) & (column < width))[:, None] & (c < C)[None, :]
        base = x_ptr + (image.to(tl.int64) * H + row) * W * C
        token = tl.load(base + column[:, None] * C + c[None, :], mask=real, other=0).to(tl.float32)
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
