"""LayerNorm with the constructor that all normalizers of token grids share, and the bases of the others."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tokennorm.ops.moments import check_grid, finite_padding, tokens_inside
from tokennorm.ops.tensors import in_float32


class LayerNorm(nn.LayerNorm):
    """Layer normalization over the channels of each token (Ba et al., 2016), of tensors (..., C)."""

    is_token_norm = True

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__(num_features, eps=eps)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid` is unused: the statistics are within tokens."""
        return super().forward(x)


class TokenNorm(nn.LayerNorm):
    """Base class of normalizers with another formula, `_normalize`, which gets the tokens in float32."""

    is_token_norm = True
    _initial: Mapping[str, float] | None = None

    def _add_parameter(self, name: str, shape: tuple[int, ...], value: float) -> None:
        """Adds a parameter that `reset_parameters` sets to a value."""
        self.register_parameter(name, nn.Parameter(torch.full(shape, value)))
        self._initial = {**(self._initial or {}), name: value}

    def _add_buffer(self, name: str, shape: tuple[int, ...], value: float) -> None:
        """Adds a buffer that `reset_parameters` sets to a value, of integers if that is one."""
        self.register_buffer(name, torch.full(shape, value))
        self._initial = {**(self._initial or {}), name: value}

    def reset_parameters(self) -> None:
        """Sets weight to 1, bias to 0, and what a subclass has added to its initial value."""
        super().reset_parameters()
        for name, value in (self._initial or {}).items():
            nn.init.constant_(getattr(self, name), value)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(..., C) -> (..., C). `valid` is unused: the statistics are within tokens."""
        return in_float32(self._normalize, x)


class GridNorm:
    """Mixin for a weight (C,) and a formula across tokens, `_normalize`.

    It gets the tokens in float32, and the mask (B, H, W, 1) of those that are not padding, None for all.
    """

    is_token_norm = True

    def forward(self: Any, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C). `valid`: height and width of each image in tokens, int (B, 2)."""
        check_grid(type(self).__name__, x, self.weight.shape[0], valid)
        inside = tokens_inside(x, valid)
        return in_float32(self._normalize, finite_padding(x, inside), inside)
