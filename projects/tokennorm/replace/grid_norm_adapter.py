"""Adapts a token normalization layer to the layout of the LayerNorm that it replaces."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokennorm.replace.grids import GridRecord

Grid = tuple[int, int] | Literal['sequence'] | None


def affine_of(norm: nn.Module) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    """Weight and bias of a normalizer (batch norms hold them one level down); None if it has none."""
    norm = norm if isinstance(norm, nn.LayerNorm) else getattr(norm, 'bn', norm)
    return getattr(norm, 'weight', None), getattr(norm, 'bias', None)


def shape_of(norm: nn.LayerNorm | nn.BatchNorm1d) -> tuple[int, ...]:
    """Shape of a norm's weight: (C,)."""
    return tuple(norm.normalized_shape) if isinstance(norm, nn.LayerNorm) else (norm.num_features,)


class GridNormAdapter(nn.Module):
    """Calls a normalizer of grids with (B, H, W, C), and applies LayerNorm with its weight and bias to prefix tokens.

    Args:
        norm: The normalizer, with the weight and bias of the norm that it replaces.
        name: The name of that norm in the model, for messages.
        old: That norm, for its channels and eps.
        num_heads: Heads of the attention that the norm belongs to.
        grid: Layout of (B, T, C) after the prefix tokens: (H, W), 'sequence' for 1 x T, or None to look it up in
            `record`.
        num_prefix_tokens: The numbers of prefix tokens that a sequence may begin with, the likeliest first.
        record: The grids of the forward pass.
    """

    def __init__(
        self,
        norm: nn.Module,
        name: str,
        old: nn.LayerNorm | nn.BatchNorm1d,
        num_heads: int,
        grid: Grid,
        num_prefix_tokens: Sequence[int],
        record: GridRecord,
    ) -> None:
        super().__init__()
        if grid not in (None, 'sequence') and not (isinstance(grid, tuple | list) and len(grid) == 2):
            raise ValueError(f"replace_norms: {name}: grid={grid!r} must be (height, width), 'sequence' or None")
        self.norm = norm
        self.name = name
        self.num_heads = num_heads
        self.normalized_shape = shape_of(old)
        self.eps = old.eps
        self.channels_first = '2d' in type(old).__name__  # the LayerNorm2d of timm and mmpretrain
        self.grid = tuple(grid) if isinstance(grid, list) else grid
        self.num_prefix_tokens = tuple(num_prefix_tokens)
        self.record = record

    @property
    def weight(self) -> nn.Parameter | None:
        """Weight of the normalizer, for code that reads it from a LayerNorm; None if it has none."""
        return affine_of(self.norm)[0]

    @property
    def bias(self) -> nn.Parameter | None:
        """Bias of the normalizer; None if it has none."""
        return affine_of(self.norm)[1]

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C), (B, H, W, C), (B, C, H, W) if the LayerNorm took that, or (B * T, C), to the same shape."""
        if self.channels_first:
            return self._of_grid(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        if x.ndim == 4:
            self.record.note(*x.shape[1:3], batch=x.shape[0])  # timm's Swin flattens the grid for its second norm
            return self._of_grid(x)
        if x.ndim == 2 and self.record.image and self.record.is_current():  # the tokens of all images, for a batch norm
            return self(x.unflatten(0, (self.record.batch, -1))).flatten(0, 1)
        if x.ndim != 3:
            raise ValueError(f'{self.name} got {tuple(x.shape)}, expected (B, T, C) or (B, H, W, C)')
        prefix, grid = self._find_grid(x)
        tokens = self._of_grid(x[:, prefix:].unflatten(1, grid), prefix).flatten(1, 2)
        return torch.cat([self._of_prefix(x[:, :prefix]).to(tokens.dtype), tokens], dim=1) if prefix else tokens

    def _find_grid(self, x: Tensor) -> tuple[int, tuple[int, int]]:
        num_tokens = x.shape[1]
        if self.grid == 'sequence':
            return self.num_prefix_tokens[0], (1, num_tokens - self.num_prefix_tokens[0])
        if self.grid is None:
            if prefix_and_grid := self.record.find(num_tokens, x.shape[0], self.num_prefix_tokens):
                return prefix_and_grid
        else:
            for prefix in self.num_prefix_tokens:
                if num_tokens - prefix == self.grid[0] * self.grid[1]:
                    return prefix, self.grid
        seen = ', '.join(dict.fromkeys(f'{height} x {width}' for height, width, _ in self.record.grids)) or 'none'
        raise ValueError(
            f'{self.name}: grid={self.grid!r} does not give the grid of {num_tokens} tokens with '
            f'{" or ".join(map(str, self.num_prefix_tokens))} prefix tokens; the forward pass had the grids {seen}. '
            "Set grid=(height, width) or 'sequence', or num_prefix_tokens, in replace_norms"
        )

    def _of_grid(self, x: Tensor, prefix: int = 0) -> Tensor:
        valid = None
        if self.grid is None:
            valid = self.record.valid((x.shape[1], x.shape[2]), x.shape[0])
        elif self.grid == 'sequence':
            valid = self.record.valid_sequence(x.shape[0], prefix + x.shape[2], prefix)
        return self.norm(x) if valid is None else self.norm(x, valid)

    def _of_prefix(self, x: Tensor) -> Tensor:
        weight, bias = (p if p is not None and p.shape == self.normalized_shape else None for p in affine_of(self.norm))
        return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)

    def extra_repr(self) -> str:
        return f'grid={self.grid!r}, num_prefix_tokens={self.num_prefix_tokens}'
