"""LayerNorm with the constructor that all normalizers of token grids share, and the base of those derived from it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

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
