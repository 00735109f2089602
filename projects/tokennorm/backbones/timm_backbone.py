"""Any vision transformer of timm (Wightman, pytorch-image-models) with `forward_intermediates`, as a backbone of
detectors."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, Literal

from torch import Tensor, nn

from tokennorm.backbones.base import Backbone, in_autocast_dtype
from tokennorm.checkpoints import load_from_init_cfg
from tokennorm.messages import did_you_mean
from tokennorm.registry import MODELS
from tokennorm.replace import replace_norms, replace_stem
from tokennorm.replace.grid_norm_adapter import GridNormAdapter


def group_by_depth(model: nn.Module, coarse: bool = False) -> dict[str, int]:
    """The depth of every parameter of a model of timm, as its `group_matcher` has it.

    Args:
        model: The model.
        coarse: Count stages where the finer grouping counts blocks, and give the depths of modules as well.

    Returns:
        Names to depths: 0 is the stem, then one for each stage or block, and the last, which has the name '' in any
        case, is all that lies behind them.

    Raises:
        ValueError: where the model has no `group_matcher`.
    """
    from timm.models._manipulate import group_with_matcher

    if not hasattr(model, 'group_matcher'):
        raise ValueError(
            f'TimmBackbone: {type(model).__name__} has no group_matcher: frozen_stages must be -1, and there is no '
            'layer decay'
        )
    modules = model.named_modules() if coarse else [('', model)]
    return group_with_matcher(chain(model.named_parameters(), modules), model.group_matcher(coarse), reverse=True)


@MODELS.register_module()
class TimmBackbone(Backbone):
    """Feature maps of one of timm's models, with token normalizers and Dual PatchNorm.

    Nothing is downloaded: weights come from `init_cfg` alone, and without it timm's own start stays. Whether a model
    takes images of any size is timm's to say: `timm_args=dict(dynamic_img_size=True, dynamic_img_pad=True)` for ViTs,
    `dict(strict_img_size=False)` for Swin; PVTv2 does. The final norm of a ViT is not applied.

    What belongs to which stage or block, to freeze it and for learning rates that decay with depth, is what the model's
    `group_matcher` says: blocks in ViT and Swin, whole stages in PVTv2.

    Args:
        model_name: The name in timm, e.g. 'pvt_v2_b0'.
        token_norm_cfg: The type of the norms inside the blocks; None is the model's LayerNorm.
        stem_cfg: The type of the first patch embedding; None is the model's.
        out_indices: Stages of a pyramid, or blocks of a ViT, whose maps are returned; negative ones count from the
            end. What lies behind the last one is left out.
        norm_args: Further arguments of `replace_norms`, e.g. `dict(exclude='blocks.1[01].*')`.
        timm_args: Further arguments of `timm.create_model`.
        frozen_stages: Leading stages of a pyramid, or blocks of a ViT, that are not trained, with what stands before
            them, which 0 freezes alone; -1 freezes nothing. (Blocks also where the `group_matcher` has no stages.)
        norm_eval: Keep norms with running statistics, where there are any, in eval mode.
        with_cp: Recompute in the backward pass what timm's `set_grad_checkpointing` says, for less memory.
        autocast_dtype: 'bfloat16' or 'float16' computes the backbone under autocast and returns float32.
        init_cfg: `dict(type='Pretrained', checkpoint=...)`, a file with timm's state dict of the model or one of ours,
            or None.

    Raises:
        ValueError: for a model that timm does not have, or that gives no maps or no such ones, for `with_cp` and
            `frozen_stages` where it cannot do them, and as `replace_norms` and `replace_stem`.
        ImportError: where timm is not installed.
    """

    vector_type = 'featmap'  # none

    def __init__(
        self,
        model_name: str,
        token_norm_cfg: Mapping[str, Any] | None = None,
        stem_cfg: Mapping[str, Any] | None = None,
        out_indices: Sequence[int] = (0, 1, 2, 3),
        norm_args: Mapping[str, Any] | None = None,
        timm_args: Mapping[str, Any] | None = None,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        autocast_dtype: Literal['bfloat16', 'float16'] | None = None,
        init_cfg: Mapping[str, Any] | None = None,
    ) -> None:
        import timm  # only this backbone needs it

        if not isinstance(model_name, str) or not timm.is_model(model_name):
            nearest = did_you_mean(model_name, timm.list_models())
            raise ValueError(f'TimmBackbone: model_name={model_name!r} must be one of timm.list_models(){nearest}')
        create = partial(timm.create_model, model_name, pretrained=False, **(timm_args or {}))
        try:
            net = create(features_only=True, feature_cls='getter', out_indices=list(out_indices))
        except (AssertionError, TypeError, IndexError) as error:
            raise ValueError(
                f'TimmBackbone: out_indices={out_indices} and timm_args={timm_args} do not suit {model_name}: {error}'
            ) from error
        if not hasattr(net.model, 'forward_intermediates'):
            raise ValueError(f'TimmBackbone: model_name={model_name!r} gives no maps: no forward_intermediates')
        num_stages = max(net.out_indices) + 1
        super().__init__(
            num_stages=num_stages,
            out_indices=net.out_indices,
            frozen_stages=frozen_stages,
            norm_eval=norm_eval,
            autocast_dtype=autocast_dtype,
            init_cfg=init_cfg,
        )
        self._create = create
        self.net = net
        if with_cp:
            try:
                self.net.model.set_grad_checkpointing(True)
            except AssertionError as error:
                raise ValueError(f'TimmBackbone: with_cp=True of {model_name}: {error}') from error
        self.names_in_timm = frozenset(self.net.model.state_dict())
        if token_norm_cfg is not None:
            replace_norms(self.net, token_norm_cfg, **(norm_args or {}))
        if stem_cfg is not None:
            replace_stem(self.net, stem_cfg)
        self._freeze_stages()

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

    @in_autocast_dtype
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, 3, H, W) -> maps (B, C, H', W')."""
        return tuple(self.net(x))

    @cached_property
    def _depths(self) -> dict[str, int]:
        return group_by_depth(self.net.model)

    def _num_blocks(self) -> int:
        return max(self._depths.values()) - 1

    def _layer_depth(self, name: str) -> int | None:
        return self._depths[name.removeprefix('net.model.')]

    def _freeze_stages(self) -> None:
        if self.frozen_stages < 0:
            return
        for name, stage in group_by_depth(self.net.model, coarse=True).items():
            if stage <= self.frozen_stages:
                parent, _, own = name.rpartition('.')
                part = getattr(self.net.model.get_submodule(parent), own)
                part.requires_grad_(False)
                if isinstance(part, nn.Module):
                    part.eval()

    def _convert(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """timm's state dict of the whole model, or one of ours, to our keys."""
        if any(key.startswith('net.') for key in state_dict):
            return state_dict
        left_out = set(self._create().state_dict()) - self.names_in_timm
        replaced = {name for name, module in self.named_modules() if isinstance(module, GridNormAdapter)}
        converted = {}
        for key, value in state_dict.items():
            if key not in left_out:
                name, _, own = f'net.model.{key}'.rpartition('.')
                converted[f'{name}.norm.{own}' if name in replaced else f'{name}.{own}'] = value
        return converted
