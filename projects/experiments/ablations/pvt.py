"""PVT with Eq. 6 in its attention (DTN paper, Table 10a)."""

from typing import Any, Literal

from experiments.ablations.eq6 import Eq6, reset_eq6
from tokennorm.backbones import PVT
from tokennorm.backbones.pvt import SpatialReductionAttention


class AblatedPVT(PVT):
    """`PVT` with one more argument.

    Args:
        rel_pos: 'eq6' adds the relative positions of Eq. 6 to the attention of the first `token_norm_stages` stages,
            initialized by Eq. 7. None is `PVT`.
        token_norm_stages: As in `PVT`.
    """

    def __init__(
        self, *args: Any, rel_pos: Literal['eq6'] | None = None, token_norm_stages: int | None = None, **kwargs: Any
    ) -> None:
        if rel_pos not in (None, 'eq6'):
            raise ValueError(f"AblatedPVT: rel_pos={rel_pos!r} must be 'eq6' or None")
        stages = 3 if token_norm_stages is None else token_norm_stages
        self.eq6_stages = stages if rel_pos else 0
        super().__init__(*args, token_norm_stages=token_norm_stages, **kwargs)
        if rel_pos and (stages == 0 or (self.out_type == 'cls_token' and stages >= len(self.stages))):
            raise ValueError(
                f"AblatedPVT: rel_pos='eq6' needs token_norm_stages={stages} of at least 1, and with "
                "out_type='cls_token' below the number of stages: the class token has no position in a grid"
            )

    def _attention_type(self, stage: int) -> type[SpatialReductionAttention]:
        return Eq6SpatialReductionAttention if stage < self.eq6_stages else SpatialReductionAttention

    def reset_parameters(self) -> None:
        """As `PVT`; the positions of Eq. 6 by Eq. 7."""
        super().reset_parameters()
        reset_eq6(self)


class Eq6SpatialReductionAttention(Eq6, SpatialReductionAttention):
    """`SpatialReductionAttention` with Eq. 6."""
