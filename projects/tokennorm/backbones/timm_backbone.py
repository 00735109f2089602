"""Any vision transformer of timm (Wightman, pytorch-image-models) with `forward_intermediates`, as a backbone of
detectors."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from mmengine.model import BaseModule
from torch import Tensor

from tokennorm.checkpoints import load_from_init_cfg
from tokennorm.names import did_you_mean
from tokennorm.registry import MODELS
from tokennorm.surgery import replace_norms, replace_stem
from tokennorm.surgery.token_norm import TokenNorm


@MODELS.register_module()
class TimmBackbone(BaseModule):
    """Feature maps of one of timm's models, with token normalizers and Dual PatchNorm.

    Nothing is downloaded: weights come from `init_cfg` alone. Whether a model takes images of any size is timm's to
    say: `timm_args=dict(dynamic_img_size=True, dynamic_img_pad=True)` for ViTs, `dict(strict_img_size=False)` for
    Swin; PVTv2 does. The final norm of a ViT is not applied.
    There is no `frozen_stages`, and no layer decay.

    Args:
        model_name: The name in timm, e.g. 'pvt_v2_b0'.
        token_norm_cfg: The type of the norms inside the blocks; None is the model's LayerNorm.
        stem_cfg: The type of the first patch embedding; None is the model's.
        out_indices: Stages of a pyramid, or blocks of a ViT, whose maps are returned; negative ones count from the
            end. What lies behind the last one is left out.
        norm_args: Further arguments of `replace_norms`, e.g. `dict(exclude='blocks.1[01].*')`.
        timm_args: Further arguments of `timm.create_model`.
        init_cfg: `dict(type='Pretrained', checkpoint=...)`, a file with timm's state dict of the model or one of ours,
            or None.

    Raises:
        ValueError: for a model that timm does not have, or that gives no maps, and as `replace_norms` and
            `replace_stem`.
        ImportError: where timm is not installed.
    """

    def __init__(
        self,
        model_name: str,
        token_norm_cfg: Mapping[str, Any] | None = None,
        stem_cfg: Mapping[str, Any] | None = None,
        out_indices: Sequence[int] = (0, 1, 2, 3),
        norm_args: Mapping[str, Any] | None = None,
        timm_args: Mapping[str, Any] | None = None,
        init_cfg: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        import timm  # only this backbone needs it

        if not isinstance(model_name, str) or not timm.is_model(model_name):
            nearest = did_you_mean(model_name, timm.list_models())
            raise ValueError(f'TimmBackbone: model_name={model_name!r} must be one of timm.list_models(){nearest}')
        self._create = partial(timm.create_model, model_name, pretrained=False, **(timm_args or {}))
        try:
            self.net = self._create(features_only=True, feature_cls='getter', out_indices=list(out_indices))
        except (AssertionError, TypeError, IndexError) as error:
            raise ValueError(
                f'TimmBackbone: out_indices={out_indices} and timm_args={timm_args} do not suit {model_name}: {error}'
            ) from error
        if not hasattr(self.net.model, 'forward_intermediates'):
            raise ValueError(f'TimmBackbone: model_name={model_name!r} gives no maps: no forward_intermediates')
        self.names_in_timm = frozenset(self.net.model.state_dict())
        if token_norm_cfg is not None:
            replace_norms(self.net, token_norm_cfg, **(norm_args or {}))
        if stem_cfg is not None:
            replace_stem(self.net, stem_cfg)

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """Channels (`num_chs`) and stride (`reduction`, in pixels) of each map, in timm's words."""
        return self.net.feature_info.get_dicts()

    def init_weights(self) -> None:
        """Loads the checkpoint of `init_cfg`, if there is one; timm's own initialisation stays otherwise.

        Raises:
            RuntimeError: where the checkpoint's parameters are not this model's.
        """
        if self.init_cfg is not None:
            load_from_init_cfg(self, self.init_cfg, self._convert)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, 3, H, W) -> maps (B, C, H', W')."""
        return tuple(self.net(x))

    def _convert(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """timm's state dict of the whole model, or one of ours, to our keys."""
        if any(key.startswith('net.') for key in state_dict):
            return state_dict
        left_out = set(self._create().state_dict()) - self.names_in_timm
        replaced = {name for name, module in self.named_modules() if isinstance(module, TokenNorm)}
        converted = {}
        for key, value in state_dict.items():
            if key not in left_out:
                name, _, own = f'net.model.{key}'.rpartition('.')
                converted[f'{name}.norm.{own}' if name in replaced else f'{name}.{own}'] = value
        return converted
