"""Stems with patch statistics, or one part of them, under the names that the study's runs have."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tokennorm.layers import DualPatchEmbed, PatchEmbed
from tokennorm.registry import MODELS


class _Part(nn.Module):
    """Keeps the columns of a weight that belong to the means of the channels, or the last one, of the log deviation."""

    def __init__(self, part: str, columns: int) -> None:
        super().__init__()
        is_last = torch.arange(columns) == columns - 1
        self.register_buffer('kept', {'mean': ~is_last, 'deviation': is_last}[part], persistent=False)

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.kept


class _WithStatistics:
    """A stem with `statistics=True`; `part` is 'mean', 'deviation' or None for both."""

    def __init__(self, part: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs, statistics=True)
        if part:
            linear = self.statistics
            parametrize.register_parametrization(linear, 'weight', _Part(part, linear.in_features))


@MODELS.register_module()
class PatchEmbedWithStatistics(_WithStatistics, PatchEmbed):
    """`PatchEmbed(statistics=True)`, or one part of the statistics."""


@MODELS.register_module()
class DualPatchEmbedWithStatistics(_WithStatistics, DualPatchEmbed):
    """`DualPatchEmbed(statistics=True)`, or one part of the statistics."""
