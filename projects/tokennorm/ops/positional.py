"""The positional weights of Eq. 6 (Shao et al., "Dynamic Token Normalization Improves Vision Transformers"), applied to
token grids axis by axis.

Letters of the shapes: B maps, H x W grid, C channels, N heads, D = C / N channels a head, K taps.

P of Eq. 6 is the Kronecker product of Py (H, H) and Px (W, W), see `tokennorm.ops.dtn`. The two classes here apply it
to maps of tokens and know their own gradient. They work without autograd, in float32, and are what the hand-made DTN is
built on:

- `BandedWeights`: up to its rows' denominators P is a convolution. Where the exponents fall off within a few cells, a
  short depthwise convolution per axis followed by a division is exact to float32: O(HW) work.
- `DenseWeights`: two batched matrix products a head, for everything else. O(HW (H + W)) work.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Every row of P holds its own token with weight exp(0) = 1, so an offset whose exponent is below -19.9 changes a row by
# less than 3e-9 of it: float32 resolves 6e-8.
_LOWEST_EXPONENT = -19.9
# Unnormalized sums of weights up to exp(10) stay far inside float32 for both axes together.
_HIGHEST_EXPONENT = 10.0
_MAX_TAPS = 27


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


def positional_weights(position: Tensor, height: int, width: int) -> 'BandedWeights | DenseWeights':
    """P of `position` (N, 3) on a grid, in the form that is cheaper for it. Reads the parameters' values."""
    rows = position.tolist()
    reach_y = [_reach(a1, a3, height) for a1, _, a3 in rows]
    reach_x = [_reach(a1, a2, width) for a1, a2, _ in rows]
    if None in reach_y or None in reach_x:
        return DenseWeights(position, height, width)
    taps_y, taps_x = 2 * max(reach_y) + 1, 2 * max(reach_x) + 1
    if max(taps_y, taps_x) > _MAX_TAPS or taps_y > height or taps_x > width:  # taps beyond the grid are slow
        return DenseWeights(position, height, width)
    a1, a2, a3 = position.unbind(dim=1)
    return BandedWeights(Taps.of(a1, a3, height, max(reach_y)), Taps.of(a1, a2, width, max(reach_x)))


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
        y, x: Taps along the two axes.

    Attributes:
        halo: Rows above and below a row of tokens that its row of P reaches.
    """

    def __init__(self, y: 'Taps', x: 'Taps') -> None:
        self.y = y
        self.x = x
        self.halo = y.weight.shape[1] // 2
        # (H, W, N, 1): one over the sum of each row's weights.
        self.scale = (y.scale[:, :, None] * x.scale[:, None, :]).permute(1, 2, 0).unsqueeze(-1).contiguous()

    def rows(self, start: int, stop: int) -> 'BandedWeights':
        """P for a window of the grid's rows. What it gives for rows nearer than `halo` to a cut is not to be used."""
        y = self.y._replace(inside=self.y.inside[:, start:stop], scale=self.y.scale[:, start:stop])
        return BandedWeights(y, self.x)

    def apply(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """P x for maps (B, H, W, C), and x after the x axis alone, which `backward` wants."""
        half = _convolve(x, self.x.weight, axis='x')
        return self._divide(_convolve(half, self.y.weight, axis='y')), half

    def backward(self, x: Tensor, half: Tensor, grad: Tensor, dots: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of x and of `position`.

        Args:
            x: What `apply` was given, (B, H, W, C).
            half: What it returned second.
            grad: Gradient of its first result; overwritten.
            dots: Gradient times result, summed over the maps and each head's channels, (N, H, W).
        """
        self._divide(grad)
        grad, grad_y = _convolve_backward(half, self.y.weight, grad)
        # The same memory as B * H images of W x 1: a kernel along the first axis has a fast gradient.
        columns, grad_columns = (t.flatten(0, 1).unsqueeze(2) for t in (x, grad))
        _, grad_x = _convolve_backward(columns, self.x.weight, grad_columns, of_input=False)
        grad = _convolve(grad, self.x.weight.flip(1), axis='x')

        # Through the denominators: each row's dot of gradient and result, times the row's weights.
        grad_y = self.y.weight * (grad_y - (dots.sum(dim=2) * self.y.scale) @ self.y.inside.T)
        grad_x = self.x.weight * (grad_x - (dots.sum(dim=1) * self.x.scale) @ self.x.inside.T)
        square = grad_y @ self.y.offset.square() + grad_x @ self.x.offset.square()
        return grad, torch.stack([square, grad_x @ self.x.offset, grad_y @ self.y.offset], dim=1)

    def _divide(self, x: Tensor) -> Tensor:
        x.unflatten(-1, (self.scale.shape[2], -1)).mul_(self.scale)
        return x


class Taps(NamedTuple):
    """One axis of Eq. 6 as a convolution.

    Attributes:
        weight: exp of the exponent at each offset, (N, K).
        offset: The offsets, in cells, (K,).
        inside: Which of them stay on the grid, for each cell of the axis, 0 or 1, (K, size).
        scale: One over the sum of those weights, (N, size).
    """

    weight: Tensor
    offset: Tensor
    inside: Tensor
    scale: Tensor

    @classmethod
    def of(cls, square: Tensor, linear: Tensor, size: int, reach: int) -> 'Taps':
        """Of factors (N,), on an axis of `size` cells, with offsets up to `reach`."""
        offset = torch.arange(-reach, reach + 1, device=square.device)
        cell = offset[:, None] + torch.arange(size, device=square.device)
        inside = ((cell >= 0) & (cell < size)).to(square.dtype)
        offset = offset.to(square.dtype)
        weight = torch.addcmul(square[:, None] * offset.square(), linear[:, None], offset).exp_()
        return cls(weight, offset, inside, (weight @ inside).reciprocal_())


def _convolve(x: Tensor, taps: Tensor, axis: str) -> Tensor:
    """Each head's taps (N, K) along one axis of (B, H, W, C), zeros beyond the grid."""
    reach, kernel = taps.shape[1] // 2, _kernel(taps, x.shape[-1])
    kernel, padding = (kernel.unsqueeze(3), (reach, 0)) if axis == 'y' else (kernel.unsqueeze(2), (0, reach))
    return F.conv2d(x.permute(0, 3, 1, 2), kernel, padding=padding, groups=x.shape[-1]).permute(0, 2, 3, 1).contiguous()


def _convolve_backward(x: Tensor, taps: Tensor, grad: Tensor, of_input: bool = True) -> tuple[Tensor | None, Tensor]:
    """Gradients of `_convolve` along y: of its input, (B, H, W, C), and of its taps, (N, K)."""
    kernel = _kernel(taps, x.shape[-1]).unsqueeze(-1)
    grad_input, grad_kernel, _ = torch.ops.aten.convolution_backward(
        grad.permute(0, 3, 1, 2),
        x.permute(0, 3, 1, 2),
        kernel,
        bias_sizes=None,
        stride=(1, 1),
        padding=(taps.shape[1] // 2, 0),
        dilation=(1, 1),
        transposed=False,
        output_padding=(0, 0),
        groups=x.shape[-1],
        output_mask=(of_input, True, False),
    )
    if of_input:
        grad_input = grad_input.permute(0, 2, 3, 1).contiguous()
    return grad_input, grad_kernel.reshape(taps.shape[0], -1, taps.shape[1]).sum(dim=1)


def _kernel(taps: Tensor, channels: int) -> Tensor:
    """Each head's taps (N, K) for each of its channels, (C, 1, K)."""
    return taps[:, None].expand(-1, channels // taps.shape[0], -1).reshape(channels, 1, -1)


class DenseWeights:
    """P as one matrix an axis and head, for weights that no short convolution holds.

    Args:
        position: [a1, a2, a3] of each head, float32 (N, 3).
        height, width: Size of the grid.
    """

    halo = None  # every row reaches every other

    def __init__(self, position: Tensor, height: int, width: int) -> None:
        a1, a2, a3 = position.unbind(dim=1)
        self.p_x = axis_weights(a1, a2, width)
        self.p_y = axis_weights(a1, a3, height)

    def apply(self, x: Tensor) -> tuple[Tensor, None]:
        """P x for maps (B, H, W, C). The second result is for `BandedWeights` to use."""
        product = torch.empty_like(x)
        for tokens, target, p_y, p_x in zip(self._heads(x), self._heads(product), self.p_y, self.p_x, strict=True):
            half = _multiply(p_y, tokens.flatten(2))
            target.copy_(_multiply(p_x, half).view(target.shape))
        return product, None

    def backward(self, x: Tensor, half: None, grad: Tensor, dots: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of x and of `position`. Arguments as in `BandedWeights`; `grad` becomes the first result."""
        grad_y, grad_x = torch.empty_like(self.p_y), torch.empty_like(self.p_x)
        for n, (tokens, target) in enumerate(zip(self._heads(x), self._heads(grad), strict=True)):
            tokens, g = tokens.flatten(2), target.flatten(2).transpose(0, 1)  # (H, W, B D), (W, H, B D)
            torch.mm(g.flatten(1), _multiply(self.p_y[n], tokens).flatten(1).T, out=grad_x[n])
            g = _multiply(self.p_x[n].T, g)
            torch.mm(g.flatten(1), tokens.flatten(1).T, out=grad_y[n])
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
