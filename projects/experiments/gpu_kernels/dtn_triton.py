"""Dynamic Token Normalization in Triton, for CUDA devices: Algorithm 1 of the paper, forward and backward.

Letters: B images, H x W tokens, h x w windows of p x p tokens (the last ones may be partial), C channels, N heads of D
channels. Tensors are contiguous, (B, H, W, C) or (B, h, w, C), and what is between kernels is float32.

P of Eq. 6 is a product along x and a product along y, whose weights each kernel computes where it needs them, relative
to the largest of their row. Weights below LIGHTEST of it are left out: together they weigh less than float32 resolves.
For a1 < 0 what is left is a narrow band.

    forward     axis       of each row of P: 1 / sum of the weights, mean of their offsets and of the squares
                token      mean and variance of each token; means of windows
                shift      of each image's channels, taken off before squaring
                along_x    P along x of the windows and of their squares: two planes
                along_y    P along y of the planes; normalizes the tokens
    backward    along_x    again
                gradient   along_y again; gradients of what it got, and of parameters
                back_y     through P along y
                back_x     through P along x, windows and each token's own statistics

Each program writes where no other writes, and sums are added in a fixed order: results do not differ between runs.
No GPU has run these kernels in the tests. Importing needs Triton.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokennorm.ops.tensors import result_dtype, without_autocast

REACH = tl.constexpr(22.2)  # LIGHTEST is exp(-22.2), 2^-32
# Products of float32 on tensor cores in three passes of TF32. Plain TF32 would leave ten bits.
PRECISION: tl.constexpr = tl.constexpr('tf32x3')
SAMPLES: tl.constexpr = tl.constexpr(8)  # rows and columns that `shift` is a mean of
PARAMETERS = 4  # sums of `gradient`: of gradients of weight, bias and the lambdas


def triton_dtn(
    x: Tensor, *parameters: Tensor | None, eps: float = 1e-5, pool: int = 1, valid: Tensor | None = None
) -> Tensor:
    """`dtn` in its 'paper' form. Arguments and result are those of `dtn`, the first six by position.

    Nothing is checked: x is float32, bfloat16 or float16 and not empty.
    """
    out_dtype = result_dtype(x)
    valid = None if valid is None else valid.to(torch.int32).contiguous()
    with without_autocast(x):
        parameters = tuple(t if t is None else t.float().contiguous() for t in parameters)
        return _DTN.apply(x.contiguous(), *parameters, eps, pool, valid).to(out_dtype)


class _DTN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, mean_logit, var_logit, position, eps, pool, valid):
        call = _Call(x, (weight, bias, mean_logit, var_logit, position), eps, pool, valid)
        y, saved = call.forward()
        ctx.save_for_backward(x, weight, bias, mean_logit, var_logit, position, valid, *saved)
        ctx.eps, ctx.pool = eps, pool
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        """The gradients of the arguments of `forward`, None for those that have none. torch calls it."""
        x, *parameters, valid, axes, stats, windows, shift = ctx.saved_tensors
        with without_autocast(x):
            call = _Call(x, parameters, ctx.eps, ctx.pool, valid)
            return *call.backward(grad_y.contiguous(), axes, stats, windows, shift), None, None, None


class _Call:
    """The launches for one tensor of tokens."""

    def __init__(self, x: Tensor, parameters, eps: float, pool: int, valid: Tensor | None) -> None:
        self.x, self.parameters, self.eps, self.pool, self.valid = x, parameters, eps, pool, valid
        self.batch, self.height, self.width, self.channels = x.shape
        self.rows, self.columns = (-(-side // pool) for side in (self.height, self.width))
        self.heads = parameters[-1].shape[0]
        # Arguments that all kernels share.
        given = parameters[-1] if valid is None else valid
        self.sizes = (given, self.height, self.width, self.rows, self.columns, pool)
        self.constants = dict(HEADS=self.heads, D=self.channels // self.heads, VALID=valid is not None, POOLED=pool > 1)

    def forward(self) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The result, and what `backward` needs of it."""
        x, (weight, bias, mean_logit, var_logit, position) = self.x, self.parameters
        images = self.batch if self.valid is not None else 1
        axes = self.empty(images, self.heads, 3, self.rows + self.columns)
        stats = self.empty(2, self.batch, self.height, self.width)
        windows = self.empty(self.batch, self.rows, self.columns, self.channels) if self.pool > 1 else x
        shift = self.empty(self.batch, self.channels)
        y = torch.empty_like(x)
        block_c = triton.next_power_of_2(self.channels)
        block = max(1, min(4096 // block_c, triton.next_power_of_2(self.columns)))
        longest = max(self.rows, self.columns)
        with torch.cuda.device_of(x):
            axis_kernel[images, 2 * self.heads, triton.cdiv(longest, 32)](
                position, axes, *self.sizes, BLOCK=32, **self.constants
            )
            token_kernel[self.batch * self.rows * triton.cdiv(self.columns, block),](
                x, stats, windows, *self.sizes, self.batch * self.height * self.width,
                BLOCK=block, BLOCK_C=block_c, **self.constants,
            )  # fmt: skip
            shift_kernel[self.batch, triton.cdiv(self.channels, 64)](
                windows, shift, *self.sizes, BLOCK_C=64, **self.constants
            )
            planes = self.along_x(windows, shift, axes)
            grid, blocks = self.grid(self.rows, self.columns)
            along_y_kernel[grid](
                x, y, stats, shift, *planes, position, axes, weight, bias, mean_logit, var_logit, self.eps,
                *self.sizes, self.batch * self.height * self.width, **blocks, **self.constants,
            )  # fmt: skip
        return y, (axes, stats, windows, shift)

    def along_x(self, windows: Tensor, shift: Tensor, axes: Tensor) -> tuple[Tensor, Tensor]:
        """P along x of the windows and of their squares."""
        shape = self.batch, self.rows, self.columns, self.channels
        planes = self.empty(*shape), self.empty(*shape)
        grid, blocks = self.grid(self.columns, self.rows)
        along_x_kernel[grid](
            windows, shift, *planes, self.parameters[-1], axes, *self.sizes, **blocks, **self.constants
        )
        return planes

    def backward(
        self, grad_y: Tensor, axes: Tensor, stats: Tensor, windows: Tensor, shift: Tensor
    ) -> tuple[Tensor | None, ...]:
        """The gradients of x and of the parameters."""
        x, (weight, _, mean_logit, var_logit, position) = self.x, self.parameters
        tokens = self.batch * self.height * self.width
        direct = self.empty(*x.shape)
        gradients = [self.empty(self.batch, self.rows, self.columns, self.channels) for _ in range(4)]
        grad_x = torch.empty_like(x)
        with torch.cuda.device_of(x):
            planes = self.along_x(windows, shift, axes)
            grid, blocks = self.grid(self.rows, self.columns, positions=16)
            sums = self.empty(grid[0], PARAMETERS, self.channels)
            shares = self.empty(2, grid[1], tokens)  # of some channels, what tokens' own variance and mean get
            gradient_kernel[grid](
                x, grad_y, direct, shares, sums, *gradients[:2], stats, shift, *planes, position, axes,
                weight, mean_logit, var_logit, self.eps, *self.sizes, tokens, **blocks, **self.constants,
            )  # fmt: skip
            grid, blocks = self.grid(self.rows, self.columns, positions=16, channels=32)
            of_y = self.empty(2, *grid)
            back_y_kernel[grid](*gradients, *planes, of_y, position, axes, *self.sizes, **blocks, **self.constants)
            grid, blocks = self.grid(self.columns, self.rows, positions=16, channels=32)
            of_x = self.empty(2, *grid)
            back_x_kernel[grid](
                x, grad_x, direct, shares.sum(dim=1), *gradients[2:], stats, windows, shift, of_x, position,
                axes, *self.sizes, tokens, **blocks, **self.constants,
            )  # fmt: skip
        of_weight, of_bias, of_mean, of_var = sums.sum(dim=0)
        # a1, and a3 or a2.
        y, x = (part.sum(dim=1).unflatten(-1, (self.heads, -1)).sum(dim=-1) for part in (of_y, of_x))
        return (
            grad_x,
            of_weight,
            of_bias,
            None if mean_logit is None else self.of_logit(of_mean * weight, mean_logit),
            self.of_logit(of_var * weight / 2, var_logit),
            torch.stack([y[0] + x[0], x[1], y[1]], dim=-1),
        )

    def of_logit(self, gradient: Tensor, logit: Tensor) -> Tensor:
        """The gradient of logits, from that of each channel's lambda."""
        return gradient.unflatten(0, (self.heads, -1)).sum(dim=-1) * torch.sigmoid(logit) * torch.sigmoid(-logit)

    def grid(
        self, size: int, lines: int, positions: int = 32, channels: int = 64
    ) -> tuple[tuple[int, int], dict[str, int]]:
        """Programs of a kernel that goes along an axis of this size, and a program's blocks.

        They have at least 16 positions and channels, for tensor cores, and at most those given: more would spill
        registers.
        """
        head_dim = self.constants['D']
        positions = positions if size > 16 else 16
        block_d = min(max(triton.next_power_of_2(head_dim), 16), channels)
        warps, registers = (8, 128) if positions == 32 else (4, 144)
        blocks = dict(BLOCK_I=positions, BLOCK_K=16, BLOCK_D=block_d, num_warps=warps, maxnreg=registers)
        return (self.batch * lines * triton.cdiv(size, positions), self.heads * triton.cdiv(head_dim, block_d)), blocks

    def empty(self, *shape: int) -> Tensor:
        return self.x.new_empty(shape, dtype=torch.float32)


# ---- Parts of kernels


@triton.jit
def sides_of(valid_ptr, image, height, width, VALID: tl.constexpr):
    """Height and width, in tokens, of what is image."""
    if VALID:
        height = tl.minimum(tl.maximum(tl.load(valid_ptr + 2 * image), 1), height)
        width = tl.minimum(tl.maximum(tl.load(valid_ptr + 2 * image + 1), 1), width)
    return height, width


@triton.jit
def heaviest(i, square, linear, size):
    """The offset of the largest weight of row i, exp(square d^2 + linear d), on a side of `size` positions."""
    low = -i.to(tl.float32)
    high = low + (size - 1)
    peak = tl.minimum(tl.maximum(tl.floor(0.5 - linear / (2 * square)), low), high)
    end = tl.where((high - low) * (square * (high + low) + linear) > 0, high, low)
    return tl.where(square < 0, peak, end)


@triton.jit
def weights(i, j, square, linear, size):
    """Weights of row i relative to its largest, 0 beyond `size`; i and j broadcast."""
    d = (j - i).to(tl.float32)
    top = heaviest(i, square, linear, size)
    return tl.where(j < size, tl.exp((d - top) * (square * (d + top) + linear)), 0.0)


@triton.jit
def band(first, last, square, linear, size):
    """The columns [begin, end) that the rows from `first` to `last` give weight to."""
    reach = tl.sqrt(REACH / -square)
    begin = tl.minimum(tl.maximum(first - linear / (2 * square), 0.0), size - 1.0) - reach
    end = tl.minimum(tl.maximum(last - linear / (2 * square), 0.0), size - 1.0) + reach
    begin = tl.where(square < 0, tl.maximum(begin, 0.0), 0.0)
    end = tl.where(square < 0, tl.minimum(end, size - 1.0), size - 1.0)
    return begin.to(tl.int32), end.to(tl.int32) + 2  # rounding may leave out one


@triton.jit
def band_of_columns(first, last, square, linear, size):
    """The rows [begin, end) that give weight to the columns from `first` to `last`. All those to whose largest weight
    a border is nearer than their peak have it there."""
    reach = tl.sqrt(REACH / -square)
    begin = first + linear / (2 * square) - reach - 1
    end = last + linear / (2 * square) + reach + 1
    begin = tl.where((square < 0) & (first - reach > 1), tl.minimum(tl.maximum(begin, 0.0), size - 1.0), 0.0)
    end = tl.where((square < 0) & (last + reach < size - 2), tl.minimum(tl.maximum(end, -1.0), size - 1.0), size - 1.0)
    return begin.to(tl.int32), end.to(tl.int32) + 1


@triton.jit
def products(
    first_ptr, second_ptr, shift, start, step, channel_inside, i, square, linear, size,
    SQUARE: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Rows i of P, not divided by their sums, times two planes, or times one less `shift` and its square."""
    first = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    second = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    begin, end = band(tl.min(i, axis=0), tl.max(i, axis=0), square, linear, size)
    for k0 in range(begin, tl.minimum(end, size), BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        p = weights(i[:, None], k[None, :], square, linear, size)
        at = start[None, :] + k[:, None].to(tl.int64) * step
        real = (k < size)[:, None] & channel_inside[None, :]
        one = tl.load(first_ptr + at, mask=real, other=0).to(tl.float32)
        if SQUARE:
            one = tl.where(real, one - shift[None, :], 0.0)
            two = one * one
        else:
            two = tl.load(second_ptr + at, mask=real, other=0)
        first = tl.dot(p, one, first, input_precision=PRECISION)
        second = tl.dot(p, two, second, input_precision=PRECISION)
    return first, second


@triton.jit
def back_products(
    first_ptr, second_ptr, start, step, channel_inside, j, square, linear, size,
    BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Columns j of P times two planes of gradients that have been divided by the sums of the weights of their rows."""
    first = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    second = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    begin, end = band_of_columns(tl.min(j, axis=0), tl.max(j, axis=0), square, linear, size)
    for k0 in range(begin, tl.minimum(end, size), BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        p = tl.where((k < size)[None, :], weights(k[None, :], j[:, None], square, linear, size), 0.0)
        at = start[None, :] + k[:, None].to(tl.int64) * step
        real = (k < size)[:, None] & channel_inside[None, :]
        first = tl.dot(p, tl.load(first_ptr + at, mask=real, other=0), first, input_precision=PRECISION)
        second = tl.dot(p, tl.load(second_ptr + at, mask=real, other=0), second, input_precision=PRECISION)
    return first, second


@triton.jit
def position_gradients(
    first_ptr, second_ptr, own_first, own_second, axis_ptr, axis_step, start, step, channel_inside, j, square, linear,
    size, BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The gradients of `square` and `linear` by the weights of columns j, from the planes that P was multiplied by.

    The gradients of a row's weights add up to 0, so offsets count from their mean.
    """
    of_square = tl.zeros([BLOCK_I], tl.float32)
    of_linear = tl.zeros([BLOCK_I], tl.float32)
    begin, end = band_of_columns(tl.min(j, axis=0), tl.max(j, axis=0), square, linear, size)
    for k0 in range(begin, tl.minimum(end, size), BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        p = tl.where((k < size)[None, :], weights(k[None, :], j[:, None], square, linear, size), 0.0)
        at = start[:, None] + k[None, :].to(tl.int64) * step
        real = channel_inside[:, None] & (k < size)[None, :]
        gradient = tl.dot(own_first, tl.load(first_ptr + at, mask=real, other=0), input_precision=PRECISION)
        other = tl.load(second_ptr + at, mask=real, other=0)
        gradient = p * tl.dot(own_second, other, gradient, input_precision=PRECISION)
        d = (j[:, None] - k[None, :]).to(tl.float32)
        mean_d = tl.load(axis_ptr + axis_step + k, mask=k < size, other=0)
        mean_square = tl.load(axis_ptr + 2 * axis_step + k, mask=k < size, other=0)
        of_square += tl.sum(gradient * (d * d - mean_square[None, :]), axis=1)
        of_linear += tl.sum(gradient * (d - mean_d[None, :]), axis=1)
    return tl.sum(of_square, axis=0), tl.sum(of_linear, axis=0)


@triton.jit
def place(lines, size, HEADS: tl.constexpr, D: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_D: tl.constexpr):
    """Image, line, positions on the line, head, channels, and which of them the head has, of a program."""
    chunks: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    head = tl.program_id(1) // chunks
    d = (tl.program_id(1) % chunks) * BLOCK_D + tl.arange(0, BLOCK_D)
    program = tl.program_id(0)
    line = program % lines  # neighboring programs read neighboring lines
    blocks = tl.cdiv(size, BLOCK_I)
    i = (program // lines) % blocks * BLOCK_I + tl.arange(0, BLOCK_I)
    return program // lines // blocks, line, i, head, head * D + d, d < D


@triton.jit
def axis_of(axes_ptr, image, head, rows, columns, HEADS: tl.constexpr, VALID: tl.constexpr):
    """Where the numbers of a head's rows of P begin: those of y, then those of x."""
    return axes_ptr + ((image if VALID else 0) * HEADS + head) * 3 * (rows + columns)


@triton.jit
def lambdas(logit_ptr, head, GIVEN: tl.constexpr):
    """Shares of a token's own statistic, and of that of its neighbors, without cancellation."""
    own = 1.0
    inter = 0.0
    if GIVEN:
        logit = tl.load(logit_ptr + head)
        own = 1 / (1 + tl.exp(-logit))
        inter = 1 / (1 + tl.exp(logit))
    return own, inter


@triton.jit
def statistics_of_windows(
    first_ptr, second_ptr, position_ptr, axes_ptr, image, image_height, i, head, start, in_head, rows, columns, pool,
    HEADS: tl.constexpr, D: tl.constexpr, VALID: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Of windows i of a column of windows: mean less the shift, variance, which rounding may leave below 0, and 1 / the
    sums of the weights."""
    square = tl.load(position_ptr + 3 * head)
    linear = tl.load(position_ptr + 3 * head + 2)
    mean, second = products(
        first_ptr, second_ptr, start, start, columns * HEADS * D, in_head, i, square, linear,
        tl.cdiv(image_height, pool), False, BLOCK_I, BLOCK_K, BLOCK_D,
    )  # fmt: skip
    scale = tl.load(axis_of(axes_ptr, image, head, rows, columns, HEADS, VALID) + i, mask=i < rows, other=0)[:, None]
    mean = mean * scale
    return mean, second * scale - mean * mean, scale


# ---- Kernels


@triton.jit
def axis_kernel(
    position_ptr, axes_ptr, valid_ptr, height, width, rows, columns, pool,
    HEADS: tl.constexpr, D: tl.constexpr, VALID: tl.constexpr, POOLED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK rows of P along one axis, of one head and image."""
    image = tl.program_id(0)
    head, is_x = tl.program_id(1) // 2, tl.program_id(1) % 2
    i = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    height, width = sides_of(valid_ptr, image, height, width, VALID)
    size = tl.cdiv(tl.where(is_x == 1, width, height), pool)
    square = tl.load(position_ptr + 3 * head)
    linear = tl.load(position_ptr + 3 * head + 2 - is_x)
    sums = tl.zeros([BLOCK], tl.float32)
    of_d = tl.zeros([BLOCK], tl.float32)
    of_square = tl.zeros([BLOCK], tl.float32)
    begin, end = band(tl.min(i, axis=0), tl.max(i, axis=0), square, linear, size)
    for k0 in range(begin, tl.minimum(end, size), BLOCK):
        k = k0 + tl.arange(0, BLOCK)
        p = weights(i[:, None], k[None, :], square, linear, size)
        d = (k[None, :] - i[:, None]).to(tl.float32)
        sums += tl.sum(p, axis=1)
        of_d += tl.sum(p * d, axis=1)
        of_square += tl.sum(p * d * d, axis=1)
    axis = axis_of(axes_ptr, image, head, rows, columns, HEADS, VALID) + is_x * rows
    inside = i < tl.where(is_x == 1, columns, rows)
    tl.store(axis + i, 1 / sums, mask=inside)
    tl.store(axis + rows + columns + i, of_d / sums, mask=inside)
    tl.store(axis + 2 * (rows + columns) + i, of_square / sums, mask=inside)


@triton.jit
def token_kernel(
    x_ptr, stats_ptr, windows_ptr, valid_ptr, height, width, rows, columns, pool, tokens,
    HEADS: tl.constexpr, D: tl.constexpr, VALID: tl.constexpr, POOLED: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One program: the tokens of BLOCK windows of a row of windows, all channels."""
    channels: tl.constexpr = HEADS * D
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks) % rows
    image = (tl.program_id(0) // blocks // rows).to(tl.int64)
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, BLOCK_C)
    image_height, image_width = sides_of(valid_ptr, image, height, width, VALID)
    total = tl.zeros([BLOCK, BLOCK_C], tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for t in range(0, pool * pool):
        y = row * pool + t // pool
        x = column * pool + t % pool
        real = (y < height) & (x < width)
        token = (image * height + y) * width + x
        mask = real[:, None] & (c < channels)[None, :]
        value = tl.load(x_ptr + token[:, None] * channels + c[None, :], mask=mask, other=0).to(tl.float32)
        mean = tl.sum(value, axis=1) / channels
        centered = tl.where(mask, value - mean[:, None], 0.0)
        left = tl.sum(centered, axis=1) / channels  # what rounding left
        var = tl.sum(centered * centered, axis=1) / channels - left * left
        tl.store(stats_ptr + token, mean + left, mask=real)
        tl.store(stats_ptr + tokens + token, tl.where(var < 0, 0.0, var), mask=real)
        if POOLED:
            inside = real & (y < image_height) & (x < image_width)
            total += tl.where(inside[:, None], value, 0.0)
            count += inside.to(tl.float32)
    if POOLED:
        window = (image * rows + row) * columns + column
        average = total / tl.where(count > 0, count, 1.0)[:, None]
        mask = (column < columns)[:, None] & (c < channels)[None, :]
        tl.store(windows_ptr + window[:, None] * channels + c[None, :], average, mask=mask)


@triton.jit
def shift_kernel(
    windows_ptr, shift_ptr, valid_ptr, height, width, rows, columns, pool,
    HEADS: tl.constexpr, D: tl.constexpr, VALID: tl.constexpr, POOLED: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """One program: the mean of BLOCK_C channels over windows all over the image."""
    channels: tl.constexpr = HEADS * D
    image = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    image_height, image_width = sides_of(valid_ptr, image, height, width, VALID)
    k = tl.arange(0, SAMPLES * SAMPLES)
    row = (k // SAMPLES) * tl.cdiv(image_height, pool) // SAMPLES
    column = (k % SAMPLES) * tl.cdiv(image_width, pool) // SAMPLES
    window = (image * rows + row) * columns + column
    mask = (c < channels)[None, :]
    value = tl.load(windows_ptr + window[:, None] * channels + c[None, :], mask=mask, other=0).to(tl.float32)
    tl.store(shift_ptr + image * channels + c, tl.sum(value, axis=0) / (SAMPLES * SAMPLES), mask=c < channels)


@triton.jit
def along_x_kernel(
    windows_ptr, shift_ptr, first_ptr, second_ptr, position_ptr, axes_ptr,
    valid_ptr, height, width, rows, columns, pool,
    HEADS: tl.constexpr, D: tl.constexpr, VALID: tl.constexpr, POOLED: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_I windows of a row of windows, and at most BLOCK_D channels of a head."""
    channels: tl.constexpr = HEADS * D
    image, line, i, head, c, in_head = place(rows, columns, HEADS, D, BLOCK_I, BLOCK_D)
    _, image_width = sides_of(valid_ptr, image, height, width, VALID)
    size = tl.cdiv(image_width, pool)
    square = tl.load(position_ptr + 3 * head)
    linear = tl.load(position_ptr + 3 * head + 1)
    shift = tl.load(shift_ptr + image * channels + c, mask=in_head, other=0)
    start = (image.to(tl.int64) * rows + line) * columns * channels + c
    first, second = products(
        windows_ptr, windows_ptr, shift, start, channels, in_head, i, square, linear, size,
        True, BLOCK_I, BLOCK_K, BLOCK_D,
    )  # fmt: skip
    scale = tl.load(axis_of(axes_ptr, image, head, rows, columns, HEADS, VALID) + rows + i, mask=i < columns, other=0)
    at = start[None, :] + i[:, None].to(tl.int64) * channels
    real = (i < columns)[:, None] & in_head[None, :]
    tl.store(first_ptr + at, first * scale[:, None], mask=real)
    tl.store(second_ptr + at, second * scale[:, None], mask=real)


@triton.jit
def along_y_kernel(
    x_ptr, y_ptr, stats_ptr, shift_ptr, first_ptr, second_ptr, position_ptr, axes_ptr,
    weight_ptr, bias_ptr, mean_logit_ptr, var_logit_ptr, eps,
    valid_ptr, height, width, rows, columns, pool, tokens,
    HEADS: tl.constexpr, D: tl.constexpr, VALID: tl.constexpr, POOLED: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program: the tokens of BLOCK_I windows of a column of windows, and at most BLOCK_D channels of a head."""
    channels: tl.constexpr = HEADS * D
    image, line, i, head, c, in_head = place(columns, rows, HEADS, D, BLOCK_I, BLOCK_D)
    image_height, image_width = sides_of(valid_ptr, image, height, width, VALID)
    start = (image.to(tl.int64) * rows * columns + line) * channels + c
    mean, inter_var, _ = statistics_of_windows(
        first_ptr, second_ptr, position_ptr, axes_ptr, image, image_height, i, head, start, in_head, rows, columns,
        pool, HEADS, D, VALID, BLOCK_I, BLOCK_K, BLOCK_D,
    )  # fmt: skip
    var = tl.where(inter_var < 0, 0.0, inter_var)
    mean += tl.load(shift_ptr + image * channels + c, mask=in_head, other=0)[None, :]
    mean_own, mean_inter = lambdas(mean_logit_ptr, head, mean_logit_ptr is not None)
    var_own, var_inter = lambdas(var_logit_ptr, head, True)
    weight = tl.load(weight_ptr + c, mask=in_head, other=0)[None, :]
    bias = tl.load(bias_ptr + c, mask=in_head, other=0)[None, :]
    for t in range(0, pool * pool):
        y = i * pool + t // pool
        x = line * pool + t % pool
        real = (y < height) & (x < width)
        token = (image.to(tl.int64) * height + y) * width + x
        at = token[:, None] * channels + c[None, :]
        value = tl.load(x_ptr + at, mask=real[:, None] & in_head[None, :], other=0).to(tl.float32)
        own_mean = tl.load(stats_ptr + token, mask=real, other=0)[:, None]
        own_var = tl.load(stats_ptr + tokens + token, mask=real, other=0)[:, None]
        inside = ((y < image_height) & (x < image_width))[:, None]
        level = tl.where(inside, mean_own * own_mean + mean_inter * mean, own_mean)
        total = tl.where(inside, var_own * own_var + var_inter * var, own_var) + eps
        result = (value - level) / tl.sqrt(total) * weight + bias
        tl.store(y_ptr + at, result.to(y_ptr.dtype.element_ty), mask=real[:, None] & in_head[None, :])


@triton.jit
def gradient_kernel(
    x_ptr, grad_y_ptr, direct_ptr, shares_ptr, sums_ptr, grad_first_ptr, grad_second_ptr,
    stats_ptr, shift_ptr, first_ptr, second_ptr, position_ptr, axes_ptr,
    weight_ptr, mean_logit_ptr, var_logit_ptr, eps,
    valid_ptr, height, width, rows, columns, pool, tokens,
    HEADS: tl.constexpr, D: tl.constexpr, VALID: tl.constexpr, POOLED: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """As `along_y_kernel`: gradients of its two filtered planes, divided by the sums of the weights, with, for a token,
    e = grad_y r, so that d mean = -e weight, and f = e (x - mean) r^2, so that d var = -f weight / 2."""
    channels: tl.constexpr = HEADS * D
    image, line, i, head, c, in_head = place(columns, rows, HEADS, D, BLOCK_I, BLOCK_D)
    image_height, image_width = sides_of(valid_ptr, image, height, width, VALID)
    start = (image.to(tl.int64) * rows * columns + line) * channels + c
    mean, inter_var, scale = statistics_of_windows(
        first_ptr, second_ptr, position_ptr, axes_ptr, image, image_height, i, head, start, in_head, rows, columns,
        pool, HEADS, D, VALID, BLOCK_I, BLOCK_K, BLOCK_D,
    )  # fmt: skip
    var = tl.where(inter_var < 0, 0.0, inter_var)
    shift = tl.load(shift_ptr + image * channels + c, mask=in_head, other=0)[None, :]
    mean_own, mean_inter = lambdas(mean_logit_ptr, head, mean_logit_ptr is not None)
    var_own, var_inter = lambdas(var_logit_ptr, head, True)
    weight = tl.load(weight_ptr + c, mask=in_head, other=0)[None, :]
    e_sum = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    f_sum = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    of_weight = tl.zeros([BLOCK_D], tl.float32)
    of_bias = tl.zeros([BLOCK_D], tl.float32)
    of_mean = tl.zeros([BLOCK_D], tl.float32)
    of_var = tl.zeros([BLOCK_D], tl.float32)
    for t in range(0, pool * pool):
        y = i * pool + t // pool
        x = line * pool + t % pool
        real = (y < height) & (x < width)
        token = (image.to(tl.int64) * height + y) * width + x
        at = token[:, None] * channels + c[None, :]
        mask = real[:, None] & in_head[None, :]
        value = tl.load(x_ptr + at, mask=mask, other=0).to(tl.float32)
        g = tl.load(grad_y_ptr + at, mask=mask, other=0).to(tl.float32)
        own_mean = tl.load(stats_ptr + token, mask=real, other=0)[:, None]
        own_var = tl.load(stats_ptr + tokens + token, mask=real, other=0)[:, None]
        inside = ((y < image_height) & (x < image_width))[:, None]
        level = tl.where(inside, mean_own * own_mean + mean_inter * (mean + shift), own_mean)
        r = 1 / tl.sqrt(tl.where(inside, var_own * own_var + var_inter * var, own_var) + eps)
        e = g * r
        product = tl.where(mask, e * (value - level), 0.0)
        f = product * (r * r)
        of_weight += tl.sum(product, axis=0)
        of_bias += tl.sum(g, axis=0)
        of_mean += tl.sum(tl.where(inside, e * (mean + (shift - own_mean)), 0.0), axis=0)
        of_var += tl.sum(tl.where(inside, f * (var - own_var), 0.0), axis=0)
        e_sum += tl.where(inside, e, 0.0)
        f_sum += tl.where(inside, f, 0.0)
        tl.store(direct_ptr + at, e * weight, mask=mask)
        share = shares_ptr + tl.program_id(1).to(tl.int64) * tokens + token
        tl.store(share, tl.sum(tl.where(inside, var_own, 1.0) * f * weight, axis=1), mask=real)
        share += tl.num_programs(1).to(tl.int64) * tokens
        tl.store(share, tl.sum(tl.where(inside, mean_own, 1.0) * e * weight, axis=1), mask=real)
    sums = sums_ptr + tl.program_id(0).to(tl.int64) * 4 * channels + c
    tl.store(sums, of_weight, mask=in_head)
    tl.store(sums + channels, of_bias, mask=in_head)
    tl.store(sums + 2 * channels, of_mean, mask=in_head)
    tl.store(sums + 3 * channels, of_var, mask=in_head)
    grad_second = tl.where(inter_var < 0, 0.0, f_sum * weight * (-0.5 * var_inter))
    grad_first = -e_sum * weight * mean_inter - 2 * grad_second * mean
    at = start[None, :] + i[:, None].to(tl.int64) * (columns * channels)
    real = (i < rows)[:, None] & in_head[None, :]
    tl.store(grad_first_ptr + at, grad_first * scale, mask=real)
    tl.store(grad_second_ptr + at, grad_second * scale, mask=real)


@triton.jit
def back_y_kernel(
    grad_first_ptr, grad_second_ptr, first_out_ptr, second_out_ptr, first_ptr, second_ptr, positions_ptr,
    position_ptr, axes_ptr, valid_ptr, height, width, rows, columns, pool,
    HEADS: tl.constexpr, D: tl.constexpr, VALID: tl.constexpr, POOLED: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_I windows of a column of windows. The results are divided by the sums of the weights of x."""
    channels: tl.constexpr = HEADS * D
    image, line, j, head, c, in_head = place(columns, rows, HEADS, D, BLOCK_I, BLOCK_D)
    image_height, _ = sides_of(valid_ptr, image, height, width, VALID)
    size = tl.cdiv(image_height, pool)
    square = tl.load(position_ptr + 3 * head)
    linear = tl.load(position_ptr + 3 * head + 2)
    start = (image.to(tl.int64) * rows * columns + line) * channels + c
    at = start[None, :] + j[:, None].to(tl.int64) * (columns * channels)
    real = (j < size)[:, None] & in_head[None, :]
    own_first = tl.load(first_ptr + at, mask=real, other=0)
    own_second = tl.load(second_ptr + at, mask=real, other=0)
    axis = axis_of(axes_ptr, image, head, rows, columns, HEADS, VALID)
    of_square, of_linear = position_gradients(
        grad_first_ptr, grad_second_ptr, own_first, own_second, axis, rows + columns, start, columns * channels,
        in_head, j, square, linear, size, BLOCK_I, BLOCK_K,
    )  # fmt: skip
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(positions_ptr + program, of_square)
    tl.store(positions_ptr + tl.num_programs(0) * tl.num_programs(1) + program, of_linear)
    first, second = back_products(
        grad_first_ptr, grad_second_ptr, start, columns * channels, in_head, j, square, linear, size,
        BLOCK_I, BLOCK_K, BLOCK_D,
    )  # fmt: skip
    scale = tl.load(axis + rows + line)
    tl.store(first_out_ptr + at, first * scale, mask=real)
    tl.store(second_out_ptr + at, second * scale, mask=real)


@triton.jit
def back_x_kernel(
    x_ptr, grad_x_ptr, direct_ptr, shares_ptr, grad_first_ptr, grad_second_ptr,
    stats_ptr, windows_ptr, shift_ptr, positions_ptr, position_ptr, axes_ptr,
    valid_ptr, height, width, rows, columns, pool, tokens,
    HEADS: tl.constexpr, D: tl.constexpr, VALID: tl.constexpr, POOLED: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program: the tokens of BLOCK_I windows of a row of windows, and at most BLOCK_D channels of a head."""
    channels: tl.constexpr = HEADS * D
    image, line, j, head, c, in_head = place(rows, columns, HEADS, D, BLOCK_I, BLOCK_D)
    image_height, image_width = sides_of(valid_ptr, image, height, width, VALID)
    size = tl.cdiv(image_width, pool)
    square = tl.load(position_ptr + 3 * head)
    linear = tl.load(position_ptr + 3 * head + 1)
    start = (image.to(tl.int64) * rows + line) * columns * channels + c
    # Lines outside the image have no gradients.
    has_gradient = in_head & (line < tl.cdiv(image_height, pool))
    own = (j < size)[:, None] & has_gradient[None, :]
    at = start[None, :] + j[:, None].to(tl.int64) * channels
    shift = tl.load(shift_ptr + image * channels + c, mask=in_head, other=0)
    own_first = tl.load(windows_ptr + at, mask=own, other=0).to(tl.float32)
    own_first = tl.where(own, own_first - shift[None, :], 0.0)
    axis = axis_of(axes_ptr, image, head, rows, columns, HEADS, VALID) + rows
    of_square, of_linear = position_gradients(
        grad_first_ptr, grad_second_ptr, own_first, own_first * own_first, axis, rows + columns, start, channels,
        has_gradient, j, square, linear, size, BLOCK_I, BLOCK_K,
    )  # fmt: skip
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(positions_ptr + program, of_square)
    tl.store(positions_ptr + tl.num_programs(0) * tl.num_programs(1) + program, of_linear)
    first, second = back_products(
        grad_first_ptr, grad_second_ptr, start, channels, has_gradient, j, square, linear, size,
        BLOCK_I, BLOCK_K, BLOCK_D,
    )  # fmt: skip
    window = tl.load(windows_ptr + at, mask=own, other=0).to(tl.float32)  # again: registers are few
    gradient = first + 2 * (window - shift[None, :]) * second
    tall = tl.minimum(image_height - line * pool, pool)
    wide = tl.minimum(image_width - j * pool, pool)
    gradient = gradient / tl.maximum(tall * wide, 1).to(tl.float32)[:, None]
    for t in range(0, pool * pool):
        y = line * pool + t // pool
        x = j * pool + t % pool
        real = (y < height) & (x < width)
        token = (image.to(tl.int64) * height + y) * width + x
        at = token[:, None] * channels + c[None, :]
        mask = real[:, None] & in_head[None, :]
        value = tl.load(x_ptr + at, mask=mask, other=0).to(tl.float32)
        own_mean = tl.load(stats_ptr + token, mask=real, other=0)[:, None]
        slope = tl.load(shares_ptr + token, mask=real, other=0)[:, None]
        level = tl.load(shares_ptr + tokens + token, mask=real, other=0)[:, None]
        inside = ((y < image_height) & (x < image_width))[:, None]
        result = tl.load(direct_ptr + at, mask=mask, other=0) - ((value - own_mean) * slope + level) / channels
        result += tl.where(inside, gradient, 0.0)
        tl.store(grad_x_ptr + at, result.to(grad_x_ptr.dtype.element_ty), mask=mask)
