"""Any vision transformer of timm (Wightman, pytorch-image-models) with `forward_intermediates`, as a backbone of
detectors."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor, nn

from tokennorm.backbones.base import Backbone
from tokennorm.base.fast_imports import fast_imports
from tokennorm.base.messages import did_you_mean, shorten
from tokennorm.base.process import alone, muted
from tokennorm.checkpoints.layouts import Converted, Layout, StateDict
from tokennorm.registry import MODELS
from tokennorm.replace import replace_norms, replace_stem
from tokennorm.replace.grid_norm_adapter import GridNormAdapter


def group_by_depth(model: nn.Module, coarse: bool = False) -> dict[str, int]:
    """Depth of every parameter of a timm model by its name, by its `group_matcher`.

    0 is the stem, then one per block, or with `coarse` one per stage, of modules too. The last depth, which the name ''
    always has, is everything after them.
    """
    from timm.models._manipulate import group_with_matcher

    if not hasattr(model, 'group_matcher'):
        raise ValueError(
            f'TimmBackbone: {type(model).__name__} of timm has no group_matcher, which frozen_stages and layer decay '
            'need'
        )
    modules = model.named_modules() if coarse else [('', model)]
    return group_with_matcher(chain(model.named_parameters(), modules), model.group_matcher(coarse), reverse=True)


def default_out_indices(strides: Sequence[int]) -> tuple[int, ...]:
    """The feature maps that a detector needs, of those of a model with these strides, in pixels.

    (-1,), the last block, if all strides are equal, as in a plain ViT; else the last feature map of each of the strides
    4, 8, 16 and 32; all feature maps if the model lacks one of these strides.
    """
    if len(set(strides)) == 1:
        return (-1,)
    last = {stride: i for i, stride in enumerate(strides)}
    detected = [last[stride] for stride in (4, 8, 16, 32) if stride in last]
    return tuple(detected if len(detected) == 4 else range(len(strides)))


def checkpoint_filter(create: Callable[..., nn.Module]) -> tuple[nn.Module, Callable[..., dict[str, Tensor]] | None]:
    """A timm model, and timm's function that converts published state dicts to the model's keys and sizes, if any.

    timm passes this function only to its own loader, which does not run here. Read in timm 1.0.31.
    """
    from timm.models import _builder

    filters: list[Any] = []

    def note(*args: Any, filter_fn: Any = None, **kwargs: Any) -> None:
        filters.append(filter_fn)

    with alone(), mock.patch.object(_builder, 'load_pretrained', note):
        model = create(pretrained=True)
    return model, filters[-1] if filters else None


@MODELS.register_module()
class TimmBackbone(Backbone):
    """Feature maps of one of timm's models, with token normalization layers and Dual PatchNorm as options.

    Nothing is downloaded. Weights come from `init_cfg` only; without it timm's own initialization stays. A file may
    have timm's names, or the authors' if timm converts them. Weights of another patch size or image size, or of 3
    channels for other `in_chans`, are resampled as timm does: `timm_args=dict(patch_size=16)` gives DINOv2, whose
    patches have 14 pixels, the stride 16. Images of any size need
    `timm_args=dict(dynamic_img_size=True, dynamic_img_pad=True)` in ViTs and `dict(strict_img_size=False)` in Swin. The
    final norm of a ViT is skipped.

    The model's `group_matcher` assigns parameters to stages or blocks, for freezing and for learning rates that decay
    with depth: blocks in ViT and Swin, whole stages in PVTv2.

    `Backbone` documents the arguments that are not listed here.

    Args:
        model_name: The name in timm, e.g. 'pvt_v2_b0', or on the Hub, 'timm/pvt_v2_b0.in1k'.
        token_norm_cfg: The norms inside the blocks; None is the model's LayerNorm.
        stem_cfg: The first patch embedding; None is the model's own.
        out_indices: Stages of a pyramid, or blocks of a ViT, whose feature maps are returned, in ascending order.
            Negative indices count from the end. Parts after the last one are left out. None is the last block of a ViT,
            for `SimpleFeaturePyramid`, and the strides 4, 8, 16 and 32 of a pyramid.
        norm_args: Further arguments of `replace_norms`, e.g. `dict(exclude='blocks.1[01].*')`.
        timm_args: Further arguments of `timm.create_model`.
        frozen_stages: As in `Backbone`, in stages of a pyramid or blocks of a ViT. (In blocks also if the
            `group_matcher` has no stages.)
        with_cp: Activation checkpointing, as in timm's `set_grad_checkpointing`.
        init_cfg: Loads timm's state dict of the model, its authors' or one of this backbone.

    Raises:
        ValueError: for a model that timm does not have or that returns no such feature maps, and as `replace_norms` and
            `replace_stem`.
        AssertionError: of timm, for `with_cp` and `frozen_stages` if the model does not support them.
        ImportError: if timm is not installed.
    """

    vector_type = 'featmap'  # it has no other `out_type`
    layouts = (Layout('timm', ()),)

    def __init__(
        self,
        model_name: str,
        token_norm_cfg: Mapping[str, Any] | None = None,
        stem_cfg: Mapping[str, Any] | None = None,
        out_indices: Sequence[int] | None = None,
        norm_args: Mapping[str, Any] | None = None,
        timm_args: Mapping[str, Any] | None = None,
        frozen_stages: int = -1,
        norm_eval: bool = False,
        with_cp: bool = False,
        autocast_dtype: Literal['bfloat16', 'float16'] | None = None,
        init_cfg: Mapping[str, Any] | None = None,
    ) -> None:
        with fast_imports():
            import timm  # only this backbone needs it

        if (timm_args or {}).get('pretrained'):
            raise ValueError(
                'TimmBackbone: timm_args.pretrained=True: nothing is downloaded; weights come from '
                "init_cfg=dict(type='Pretrained', checkpoint=FILE), or from `tokennorm train --init FILE`"
            )
        if isinstance(model_name, str):  # the name on the Hub
            model_name = re.sub(r'^(hf[-_]hub:)?timm/', '', model_name)
        if not isinstance(model_name, str) or not timm.is_model(model_name):
            models = timm.list_models()
            longer = [name for name in models if isinstance(model_name, str) and model_name and model_name in name]
            nearest = f' (did you mean one of {shorten(longer, 3)}?)' if longer else did_you_mean(model_name, models)
            raise ValueError(f'TimmBackbone: model_name={model_name!r} must be one of timm.list_models(){nearest}')
        create = partial(timm.create_model, model_name, **(timm_args or {}))
        features = partial(create, features_only=True, feature_cls='getter')
        try:
            if out_indices is None:
                with torch.device('meta'):
                    every = create().feature_info
                entries = getattr(every, 'info', every)  # a FeatureInfo, or a list
                out_indices = default_out_indices([entry['reduction'] for entry in entries])
            net = features(out_indices=list(out_indices))
        except (AssertionError, TypeError, IndexError) as error:
            raise ValueError(
                f'TimmBackbone: out_indices={out_indices} and timm_args={timm_args} do not fit {model_name}: {error}'
            ) from error
        if list(net.out_indices) != sorted(set(net.out_indices)):  # timm returns each map once, in this order
            raise ValueError(f'TimmBackbone: out_indices={list(out_indices)} must ascend, each once')
        if not hasattr(net.model, 'forward_intermediates'):
            raise ValueError(
                f'TimmBackbone: model_name={model_name!r} returns no feature maps: it has no forward_intermediates'
            )
        options: dict[str, Any] = dict(frozen_stages=frozen_stages, norm_eval=norm_eval, autocast_dtype=autocast_dtype)
        super().__init__(max(net.out_indices) + 1, net.out_indices, init_cfg=init_cfg, **options)
        self._create = create
        self.net = net
        if with_cp:
            self.net.model.set_grad_checkpointing(True)
        self.names_in_timm = frozenset(self.net.model.state_dict())
        if token_norm_cfg is not None:
            replace_norms(self.net, token_norm_cfg, **(norm_args or {}))
        if stem_cfg is not None:
            replace_stem(self.net, stem_cfg)
        self._freeze_stages()

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """Channels (`num_chs`) and stride (`reduction`, in pixels) of each feature map, with timm's keys."""
        return self.net.feature_info.get_dicts()

    def _outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, 3, H, W) -> feature maps (B, C, H', W')."""
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
                parent, _, last = name.rpartition('.')
                part = getattr(self.net.model.get_submodule(parent), last)
                part.requires_grad_(False)
                if isinstance(part, nn.Module):
                    part.eval()

    def from_published(self, state_dict: StateDict) -> Converted:
        """A state dict of the whole model, with timm's or its authors' names, or one of this backbone, to this
        backbone's keys."""
        if any(key.startswith('net.') for key in state_dict):
            return Converted(state_dict)
        import timm

        model, filter_fn = checkpoint_filter(self._create)
        whole = model.state_dict()
        if '_conv_stem.weight' in state_dict and len(whole) == len(state_dict):  # lukemelas' EfficientNet: timm's order
            state_dict = dict(zip(whole, state_dict.values(), strict=True))
        published = dict(_filtered(state_dict, filter_fn, model))
        num_known = len(whole.keys() & published.keys())
        if num_known < len(whole) / 2:
            raise ValueError(
                f'these weights belong to another model: they have {num_known} of {len(whole)} parameters of '
                f'{type(model).__name__}, and keys such as {shorten(list(state_dict), 3)}. Set model_name to the model '
                'that they belong to'
            )
        added = [key for key in whole if key.endswith('num_batches_tracked') and key not in published]  # old torch
        published |= {key: whole[key] for key in added}
        heads, convs = (_names(model.pretrained_cfg.get(key)) for key in ('classifier', 'first_conv'))
        of_heads = tuple(f'{name}.' for name in heads)  # also in files for a model with num_classes=0
        left_out = (set(whole) - self.names_in_timm) | {key for key in published if key.startswith(of_heads)}
        for key in (f'{name}.weight' for name in convs):
            weight, like = published.get(key), whole.get(key)
            if weight is not None and like is not None and weight.ndim == 4 and weight.shape[1] == 3 != like.shape[1]:
                published[key] = timm.models.adapt_input_conv(like.shape[1], weight)
        replaced = {name for name, module in self.named_modules() if isinstance(module, GridNormAdapter)}
        kept = {_storage(value) for value in published.values()}
        unused = {key for key, value in state_dict.items() if key not in published and _storage(value) not in kept}
        converted = Converted({})
        converted.unused += unused | left_out
        converted.added += [f'net.model.{key}' for key in added]
        for key, value in published.items():
            if key not in left_out:
                name, _, last = f'net.model.{key}'.rpartition('.')
                converted[f'{name}.norm.{last}' if name in replaced else f'{name}.{last}'] = value
        return converted


def _filtered(
    state_dict: dict[str, Tensor], filter_fn: Callable[..., dict[str, Tensor]] | None, model: nn.Module
) -> dict[str, Tensor]:
    """Applies timm's filter."""
    if filter_fn is None:
        return state_dict
    by_model = len(inspect.signature(filter_fn).parameters) > 1  # some filters take the state dict only
    try:
        with muted():  # that of DINOv3 prints the parameters that the model lacks
            return filter_fn(dict(state_dict), model) if by_model else filter_fn(dict(state_dict))
    except Exception as error:  # any, from code that expects the names of its own models
        raise ValueError(
            f'timm cannot convert these weights to {type(model).__name__}: {type(error).__name__}: {error}. Set '
            'model_name to the model that they belong to'
        ) from error


def _names(entry: str | Sequence[str] | None) -> Sequence[str]:
    return [entry] if isinstance(entry, str) else entry or ()


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
