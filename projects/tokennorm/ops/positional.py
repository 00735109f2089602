"""The positional weights of Eq. 6 (Shao et al., "Dynamic Token Normalization Improves Vision Transformers"), applied to
token grids axis by axis.

Letters of the shapes: B batch, H x W grid, C channels, N heads, D = C / N channels a head, K taps.

P of Eq. 6 is the Kronecker product of Py (H, H) and Px (W, W), see `tokennorm.ops.dtn`. The two classes here apply it to
pairs of maps, the first and the second moment of the tokens, and know their own gradient. They work without autograd, on
float32, and are what the hand-made DTN is built on:

- `BandedWeights`: up to its rows' denominators P is a convolution. Where the exponents fall off within a few cells, a
  short depthwise convolution per axis followed by a division is exact to float32: O(HW) work.
- `DenseWeights`: two batched matrix products a head, for everything else. O(HW (H + W)) work.

A pair of maps is a list of chunks: one tensor (2 B, H, W, C), first moments first, or, where that would be large, two
tensors (B, H, W, C).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Every row of P holds its own token with weight exp(0) = 1, so an offset whose exponent is below -20 changes a row by
# less than 2e-9 of it: float32 resolves 6e-8.
_LOWEST_EXPONENT = -20.0
# Unnormalized sums of weights up to exp(10) stay far inside float32 for both axes together.
_HIGHEST_EXPONENT = 10.0
_MAX_TAPS = 27
# Above this many bytes glibc takes memory from the system anew each time, and touching it costs more than using it.
_MAX_CHUNK_BYTES = 24 * 2**20


def axis_weights(square: Tensor, linear: Tensor, size: int, valid: Tensor | None = None) -> Tensor:
    """One axis of Eq. 6: softmax_j(square (j - i)^2 + linear (j - i)).

    Args:
        square: a1 of each head, (N,).
        linear: a2 (x axis) or a3 (y axis) of each head, (N,).
        size: Cells along the axis.
        valid: Leading cells of each image that j runs over, (B,); None is all of them.

    Returns:
        Weights (N, size, size), with `valid` (B, N, size, size); every row sums to 1.
    """
    cells = torch.arange(size, dtype=square.dtype, device=square.device)
    offset = cells[None, :] - cells[:, None]
    exponent = square[:, None, None] * offset**2 + linear[:, None, None] * offset
    if valid is not None:
        exponent = exponent.where(cells < valid[:, None, None, None], float('-inf'))
    return exponent.softmax(dim=-1)


def new_pair(like: Tensor) -> list[Tensor]:
    """Memory for a pair of maps of the shape and type of `like`."""
    if 2 * like.numel() * like.element_size() > _MAX_CHUNK_BYTES:
        return [torch.empty_like(like), torch.empty_like(like)]
    return [like.new_empty(2 * like.shape[0], *like.shape[1:])]


def split_pair(pair: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The two maps (B, H, W, C) of a pair, as views."""
    first, second = pair if len(pair) == 2 else pair[0].chunk(2)
    return first, second


def positional_weights(position: Tensor, height: int, width: int) -> 'BandedWeights | DenseWeights':
    """P of `position` (N, 3) on a grid, in the form that is cheaper for it. Reads the parameters' values."""
    rows = position.tolist()
    reach_y = [_reach(a1, a3, height) for a1, _, a3 in rows]
    reach_x = [_reach(a1, a2, width) for a1, a2, _ in rows]
    if None in reach_y or None in reach_x or 2 * max(reach_y + reach_x) + 1 > _MAX_TAPS:
        return DenseWeights(position, height, width)
    return BandedWeights(position, height, width, max(reach_y), max(reach_x))


def _reach(square: float, linear: float, size: int) -> int | None:
    """The largest |offset| on an axis of `size` cells whose weight counts; None where a convolution is not safe."""
    if not (math.isfinite(square) and math.isfinite(linear)):
        return None
    last = size - 1
    ends = square * last * last + abs(linear) * last
    if square < 0:
        peak = min(abs(linear) / (-2 * square), last)
        highest = square * peak * peak + abs(linear) * peak
        # The larger root of square o^2 + |linear| o = lowest. Written so that a tiny `square` divides nothing.
        root = math.sqrt(linear * linear + 4 * square * _LOWEST_EXPONENT)
        if abs(linear) + root < -2 * square * last:
            last = int((abs(linear) + root) / (-2 * square))
    else:
        highest = ends
    return last if highest <= _HIGHEST_EXPONENT else None


class BandedWeights:
    """P as a depthwise convolution along each axis, divided by its rows' sums.

    Args:
        position: [a1, a2, a3] of each head, float32 (N, 3).
        height, width: Size of the grid.
        reach_y, reach_x: The largest offsets that count.
    """

    def __init__(self, position: Tensor, height: int, width: int, reach_y: int, reach_x: int) -> None:
        a1, a2, a3 = position.unsqueeze(-1).unbind(dim=1)
        self.taps_y, self.offset_y, self.inside_y, self.scale_y = _axis(a1, a3, height, reach_y)
        self.taps_x, self.offset_x, self.inside_x, self.scale_x = _axis(a1, a2, width, reach_x)
        # (H, W, N, 1): one over the sum of each row's weights, 1 / (Py's sum times Px's).
        self.scale = (self.scale_y[:, :, None] * self.scale_x[:, None, :]).permute(1, 2, 0).unsqueeze(-1).contiguous()

    def apply(self, pair: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """P times both maps, and the pair after the x axis alone, which `backward` wants."""
        half = [_convolve(chunk, self.taps_x, axis='x') for chunk in pair]
        product = [_convolve(chunk, self.taps_y, axis='y') for chunk in half]
        self._divide(product)
        return product, half

    def backward(
        self, pair: list[Tensor], half: list[Tensor], grad: list[Tensor], dots: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Gradients of the pair and of `position`. Writes into `grad` and empties `half`.

        Args:
            pair: What `apply` was given.
            half: What it returned second.
            grad: Gradient of its first result.
            dots: Gradient times result, summed over both moments, (B, H, W, C).
        """
        num_heads = self.taps_y.shape[0]
        self._divide(grad)
        grad_y = sum(_convolve_grad_taps(h, g, num_heads, self.taps_y.shape[1]) for h, g in zip(half, grad, strict=True))
        half.clear()
        grad = [_convolve(grad.pop(0), self.taps_y.flip(1), axis='y') for _ in range(len(grad))]
        grad_x = sum(
            # The same memory as (B * H) images of W x 1: a kernel along the first axis has a fast gradient.
            _convolve_grad_taps(p.flatten(0, 1)[:, :, None], g.flatten(0, 1)[:, :, None], num_heads, self.taps_x.shape[1])
            for p, g in zip(pair, grad, strict=True)
        )
        grad = [_convolve(grad.pop(0), self.taps_x.flip(1), axis='x') for _ in range(len(grad))]

        # Through the denominators: the row's dot of gradient and result, times each of the row's weights.
        dots = dots.sum(dim=0).unflatten(-1, (num_heads, -1)).sum(dim=-1).permute(2, 0, 1)  # (N, H, W)
        grad_y = self.taps_y * (grad_y - (dots.sum(dim=2) * self.scale_y) @ self.inside_y.T)
        grad_x = self.taps_x * (grad_x - (dots.sum(dim=1) * self.scale_x) @ self.inside_x.T)
        return grad, torch.stack(
            [
                grad_y @ self.offset_y.square() + grad_x @ self.offset_x.square(),
                grad_x @ self.offset_x,
                grad_y @ self.offset_y,
            ],
            dim=1,
        )

    def _divide(self, pair: list[Tensor]) -> None:
        for chunk in pair:
            chunk.unflatten(-1, (self.scale.shape[2], -1)).mul_(self.scale)


def _axis(square: Tensor, linear: Tensor, size: int, reach: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Taps (N, K), their offsets (K,), which of them lie on the grid for each cell (K, size), one over their sum
    (N, size)."""
    offset = torch.arange(-reach, reach + 1, device=square.device)
    cell = offset[:, None] + torch.arange(size, device=square.device)
    inside = ((cell >= 0) & (cell < size)).to(square.dtype)
    offset = offset.to(square.dtype)
    taps = (square * offset.square() + linear * offset).exp()
    return taps, offset, inside, (taps @ inside).reciprocal()


def _convolve(x: Tensor, taps: Tensor, axis: str) -> Tensor:
    """Each head's taps (N, K) along one axis of (B, H, W, C), zeros beyond the grid."""
    num_taps = taps.shape[1]
    kernel = taps.repeat_interleave(x.shape[-1] // taps.shape[0], dim=0)
    if axis == 'y':
        kernel, padding = kernel[:, None, :, None], (num_taps // 2, 0)
    else:
        kernel, padding = kernel[:, None, None, :], (0, num_taps // 2)
    return F.conv2d(x.permute(0, 3, 1, 2), kernel, padding=padding, groups=x.shape[-1]).permute(0, 2, 3, 1).contiguous()


def _convolve_grad_taps(x: Tensor, grad: Tensor, num_heads: int, num_taps: int) -> Tensor:
    """Gradient of `_convolve`'s taps along y, (N, K), from its input and its result's gradient, (B, H, W, C)."""
    channels = x.shape[-1]
    grad_kernel = torch.ops.aten.convolution_backward(
        grad.permute(0, 3, 1, 2),
        x.permute(0, 3, 1, 2),
        x.new_empty(channels, 1, num_taps, 1),
        bias_sizes=None,
        stride=(1, 1),
        padding=(num_taps // 2, 0),
        dilation=(1, 1),
        transposed=False,
        output_padding=(0, 0),
        groups=channels,
        output_mask=(False, True, False),
    )[1]
    return grad_kernel.reshape(num_heads, -1, num_taps).sum(dim=1)


class DenseWeights:
    """P as one matrix an axis and head, for weights that no short convolution holds.

    Args:
        position: [a1, a2, a3] of each head, float32 (N, 3).
        height, width: Size of the grid.
    """

    def __init__(self, position: Tensor, height: int, width: int) -> None:
        a1, a2, a3 = position.unbind(dim=1)
        self.p_x = axis_weights(a1, a2, width)
        self.p_y = axis_weights(a1, a3, height)

    def apply(self, pair: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """P times both maps. The second result is empty: `backward` needs nothing but the pair."""
        product = [torch.empty_like(chunk) for chunk in pair]
        for chunk, out in zip(pair, product, strict=True):
            for x, target, p_y, p_x in zip(self._heads(chunk), self._heads(out), self.p_y, self.p_x, strict=True):
                half = _multiply(p_y, x.flatten(2))
                target.copy_(_multiply(p_x, half).view(target.shape))
        return product, []

    def backward(
        self, pair: list[Tensor], half: list[Tensor], grad: list[Tensor], dots: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Gradients of the pair and of `position`. Arguments as in `BandedWeights`; writes into `grad`."""
        grad_y, grad_x = torch.zeros_like(self.p_y), torch.zeros_like(self.p_x)
        for chunk, grad_chunk in zip(pair, grad, strict=True):
            for n, (x, target) in enumerate(zip(self._heads(chunk), self._heads(grad_chunk), strict=True)):
                x, g = x.flatten(2), target.flatten(2).transpose(0, 1)  # (H, W, B D), (W, H, B D)
                grad_x[n].addmm_(g.flatten(1), _multiply(self.p_y[n], x).flatten(1).T)
                g = _multiply(self.p_x[n].T, g)
                grad_y[n].addmm_(g.flatten(1), x.flatten(1).T)
                target.copy_(_multiply(self.p_y[n].T, g).transpose(0, 1).view(target.shape))
        square_x, linear_x = _exponent_grads(self.p_x, grad_x)
        square_y, linear_y = _exponent_grads(self.p_y, grad_y)
        return grad, torch.stack([square_x + square_y, linear_x, linear_y], dim=1)

    def _heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """Views (H, W, B, D) of the heads of (B, H, W, C)."""
        return x.unflatten(-1, (self.p_x.shape[0], -1)).permute(3, 1, 2, 0, 4).unbind()


def _multiply(p: Tensor, x: Tensor) -> Tensor:
    """A matrix (n, n) along the first axis of (n, m, k), which then becomes the second: (m, n, k)."""
    return torch.bmm(p.expand(x.shape[1], *p.shape), x.transpose(0, 1))


def _exponent_grads(p: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients (N,) of an axis's `square` and `linear` from that of its weights (N, size, size)."""
    grad = p * (grad - (p * grad).sum(dim=-1, keepdim=True))
    cells = torch.arange(p.shape[-1], dtype=p.dtype, device=p.device)
    offset = cells[None, :] - cells[:, None]
    return (grad * offset.square()).sum(dim=(1, 2)), (grad * offset).sum(dim=(1, 2))
