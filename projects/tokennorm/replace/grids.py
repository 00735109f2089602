"""Which grid a sequence of tokens is, in models that do not say."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from tokennorm.padding import image_sizes_of
from tokennorm.replace.stem_projection import StemProjection

WINDOWED = (nn.Conv2d, nn.Unfold, nn.MaxPool2d, nn.AvgPool2d, StemProjection)


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _windows_of(unfold: nn.Unfold, x: Tensor) -> list[int]:
    """Windows in a column and in a row of (B, C, H, W)."""
    options = (_pair(value) for value in (unfold.kernel_size, unfold.stride, unfold.padding, unfold.dilation))
    sides = zip(x.shape[-2:], *options, strict=True)
    return [
        (side + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for side, kernel, stride, pad, dilation in sides
    ]


class GridRecord:
    """The grids that came up in the current forward pass of a model, by their number of tokens and their batch.

    They are those of convolutions, unfoldings, poolings, our stems and replaced norms, and pairs (H, W) that blocks
    are called with. Of two grids with one number of tokens the later is right, as in pyramids, where maps of one size
    are of one shape. Activation checkpoints recompute with the record of the last forward pass: run two with images of
    different shapes before a backward pass, and 14 x 16 tokens may be taken for 16 x 14.
    """

    def __init__(self) -> None:
        self.grids: dict[tuple[int, int | None], tuple[int, int]] = {}
        self.image: tuple[int, int] | None = None
        self.batch = 0
        self.image_sizes: Tensor | None = None

    def watch(self, model: nn.Module, blocks: Sequence[nn.Module]) -> None:
        """Follows the forward passes of a model, and of the blocks in it, by hooks."""
        model.register_forward_pre_hook(self._start, with_kwargs=True)
        for module in model.modules():
            if isinstance(module, WINDOWED):
                module.register_forward_hook(self._after_windows)
        for block in blocks:
            block.register_forward_pre_hook(self._before_block, with_kwargs=True)

    def note(self, height: int, width: int, batch: int | None = None) -> None:
        """Remembers a grid; None stands for any batch."""
        self.grids[height * width, batch] = height, width

    def valid(self, grid: tuple[int, int], batch: int) -> Tensor | None:
        """The part of each image's grid that is image and not padding, int (B, 2); None where all is, or unknown.

        Sizes noted on the batch (`tokennorm.padding`) are scaled to the grid and rounded down.
        """
        if self.image_sizes is None or len(self.image_sizes) != batch:
            return None
        scaled = self.image_sizes * self.image_sizes.new_tensor(grid) // self.image_sizes.new_tensor(self.image)
        return scaled.clamp(min=1)

    def _start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.grids.clear()
        images = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim == 4]
        self.image = tuple(images[0].shape[-2:]) if images else None
        self.batch = len(images[0]) if images else 0
        self.image_sizes = image_sizes_of(images[0]) if images else None

    def _after_windows(self, module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        if isinstance(module, nn.Unfold):
            self.note(*_windows_of(module, args[0]), batch=len(out))
        elif out.ndim == 4:
            self.note(*out.shape[-2:], batch=len(out))

    def _before_block(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for value in (*args, *kwargs.values()):
            if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(side, int) for side in value):
                self.note(*value)

    def find(self, tokens: int, batch: int, num_prefix_tokens: Sequence[int]) -> tuple[int, tuple[int, int]] | None:
        """The prefix tokens and the grid of a sequence: a recorded grid, else a square; None where it is neither.

        Args:
            tokens: Length of the sequence.
            batch: Number of sequences: the pixels of each patch, as in TNT, are none of the image's grids.
            num_prefix_tokens: The numbers of prefix tokens that it may begin with, the likeliest first.
        """
        for prefix in num_prefix_tokens:
            grid = self.grids.get((tokens - prefix, batch)) or self.grids.get((tokens - prefix, None))
            if grid is not None:
                return prefix, grid
        for prefix in num_prefix_tokens:
            side = math.isqrt(max(tokens - prefix, 0))
            if side and side * side == tokens - prefix:
                return prefix, (side, side)
        return None
