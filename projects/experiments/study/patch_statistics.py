"""Stems with patch statistics under the names that the study's finished runs have."""

from typing import Any

from tokennorm.layers import DualPatchEmbed, PatchEmbed
from tokennorm.registry import MODELS


@MODELS.register_module()
class PatchEmbedWithStatistics(PatchEmbed):
    """`PatchEmbed(statistics=True)`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, statistics=True)


@MODELS.register_module()
class DualPatchEmbedWithStatistics(DualPatchEmbed):
    """`DualPatchEmbed(statistics=True)`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, statistics=True)
