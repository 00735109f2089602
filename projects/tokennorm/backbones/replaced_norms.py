"""Third-party models with token normalization layers, as the backbone of a classifier."""

from collections.abc import Mapping
from typing import Any

from mmengine.model import BaseModule
from torch import Tensor

from tokennorm.registry import MODELS
from tokennorm.replace import replace_norms


@MODELS.register_module()
class ReplacedNorms(BaseModule):
    """A model of timm or of an OpenMMLab package whose norms `replace_norms` replaces.

    Args:
        model: The model. `dict(type='timm.create_model', model_name='convit_small', num_classes=1000)` has a classifier
            already and needs the head `ClsHead`; `dict(type='mmpretrain.T2T_ViT', ...)` needs one of mmpretrain's
            heads.
        token_norm_cfg: The norms that replace the model's; None replaces none.
        norm_args: Further arguments of `replace_norms`, e.g. `dict(include='stages.*.bn', num_heads=4)`.
        init_cfg: As in mmengine, for the keys of this module; None keeps the model's own initialization.

    Raises:
        ValueError: as `replace_norms`.
    """

    def __init__(
        self,
        model: Mapping[str, Any],
        token_norm_cfg: Mapping[str, Any] | None = None,
        norm_args: Mapping[str, Any] | None = None,
        init_cfg: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(init_cfg)
        args = dict(model)
        self.model = MODELS.get(args.pop('type'))(**args)
        if not isinstance(self.model, BaseModule):
            self.model.is_init = True  # mmengine would reset timm's initial or pretrained weights by `init_weights`
        if token_norm_cfg is not None:
            replace_norms(self.model, token_norm_cfg, **(norm_args or {}))

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        """(B, 3, H, W) -> what the model returns, as a tuple."""
        out = self.model(x)
        return out if isinstance(out, tuple) else (out,)
