"""Finds the grid of a sequence of tokens in models that do not pass it on."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from tokennorm.padding import image_sizes_of
from tokennorm.replace.stem_projection import StemProjection

WINDOWED = (nn.Conv2d, nn.Unfold, nn.MaxPool2d, nn.AvgPool2d, StemProjection)


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    height, width = (value, value) if isinstance(value, int) else value
    return height, width


def _windows_of(unfold: nn.Unfold, x: Tensor) -> list[int]:
    """Number of windows in a column and in a row of (B, C, H, W)."""
    options = (_pair(value) for value in (unfold.kernel_size, unfold.stride, unfold.padding, unfold.dilation))
    sides = zip(x.shape[-2:], *options, strict=True)
    return [
        (side + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for side, kernel, stride, pad, dilation in sides
    ]


class GridRecord:
    """The grids of the current forward pass of a model, by number of tokens and batch size.

    They come from convolutions, unfoldings, poolings, TokenNorm stems, replaced norms, and from pairs (H, W) among the
    arguments of blocks. Of two grids with the same number of tokens the later one counts. That is right in pyramids,
    where feature maps of one size have one shape. Activation checkpointing recomputes with the record of the last
    forward pass: after two forward passes with images of different shapes, 14 x 16 tokens may be taken for 16 x 14.
    """

    def __init__(self) -> None:
        self.grids: dict[tuple[int, int | None], tuple[int, int]] = {}
        self.image: tuple[int, int] | None = None
        self.batch = 0
        self.image_sizes: Tensor | None = None

    def watch(self, model: nn.Module, blocks: Sequence[nn.Module]) -> None:
        """Registers hooks that follow the forward passes of a model and of its blocks."""
        model.register_forward_pre_hook(self._start, with_kwargs=True)
        for module in model.modules():
            if isinstance(module, WINDOWED):
                module.register_forward_hook(self._after_windows)
        for block in blocks:
            block.register_forward_pre_hook(self._before_block, with_kwargs=True)

    def note(self, height: int, width: int, batch: int | None = None) -> None:
        """Remembers a grid. A batch size of None matches any batch."""
        self.grids[height * width, batch] = height, width

    def valid(self, grid: tuple[int, int], batch: int) -> Tensor | None:
        """The part of each image's grid that is image and not padding, int (B, 2); None if all is, or if unknown.

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
        """Number of prefix tokens and grid of a sequence: a recorded grid, else a square; None if it is neither.

        Args:
            tokens: Length of the sequence.
            batch: Number of sequences. It tells the pixels of each patch, as in TNT, from the grids of the image.
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
