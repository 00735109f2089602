"""Checks that the parts of a detector fit together, before the first image does."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.registry import OPTIMIZERS
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tokennorm.messages import did_you_mean


def check_neck(model: nn.Module, neck_cfg: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> None:
    """Checks that the `in_channels` of the (first) neck are the channels of the backbone's feature maps.

    Backbones without `feature_info` and necks without `in_channels` are not checked.
    """
    first = neck_cfg[0] if isinstance(neck_cfg, list | tuple) and neck_cfg else neck_cfg
    info = getattr(getattr(model, 'backbone', None), 'feature_info', None)
    if not isinstance(first, Mapping) or first.get('in_channels') is None or info is None:
        return
    channels = [entry['num_chs'] for entry in info]
    given = first['in_channels']
    if given != (channels[-1] if isinstance(given, int) else channels):
        backbone = type(model.backbone).__name__
        raise ValueError(
            f'model.neck: in_channels={given}, but the feature maps of {backbone} have {channels} channels: '
            f'set it to {channels[-1] if isinstance(given, int) else channels}'
        )


@torch.no_grad()
def check_strides(model: nn.Module) -> None:
    """Checks that the anchors or points of a head have the strides of the neck's feature maps, by a forward pass.

    Backbones without `feature_info` and heads without `prior_generator` are not checked.
    """
    info = getattr(getattr(model, 'backbone', None), 'feature_info', None)
    neck = getattr(model, 'neck', None)
    head = next((name for name in ('rpn_head', 'bbox_head') if hasattr(model, name)), None)
    strides = getattr(getattr(getattr(model, head or '', None), 'prior_generator', None), 'strides', None)
    if info is None or neck is None or strides is None:
        return
    strides = [stride[0] for stride in strides]
    side = 4 * max(*strides, *(entry['reduction'] for entry in info))
    was_training, device = neck.training, next(model.parameters()).device
    neck.eval()  # keeps the statistics of batch norms
    with FakeTensorMode(allow_non_fake_inputs=True):  # shapes only
        sides = [side // entry['reduction'] for entry in info]
        maps = [torch.zeros(1, entry['num_chs'], s, s, device=device) for entry, s in zip(info, sides, strict=True)]
        found = [side // out.shape[-1] for out in neck(tuple(maps))]
    neck.train(was_training)
    if found != strides:
        raise ValueError(
            f'model.{head}: its anchors have the strides {strides}, but the feature maps of the neck have {found}: '
            f'change {_strides_from(model)}, or the strides of the anchors'
        )


def _strides_from(model: nn.Module) -> str:
    """The settings that decide on the strides of the feature maps."""
    if len(model.backbone.feature_info) == 1:
        return "the neck to dict(type='tokennorm.SimpleFeaturePyramid', start_level=...), for one feature map"
    return 'out_indices of the backbone, start_level and num_outs of the neck'


def check_runner_type(cfg: Mapping[str, Any]) -> None:
    """Checks that the config uses neither mmengine's FlexibleRunner (FSDP, DeepSpeed) nor an FSDP wrapper."""
    wrapper = (cfg.get('model_wrapper_cfg') or {}).get('type')
    for key, kind in {'model_wrapper_cfg.type': wrapper, 'runner_type': cfg.get('runner_type')}.items():
        if str(kind).endswith(('FullyShardedDataParallel', 'FlexibleRunner')):
            raise ValueError(
                f'{key}={kind!r} is not supported, since its checkpoints are unreliable; without it ranks use '
                'DistributedDataParallel'
            )


def check_optimizer(optim_wrapper: Mapping[str, Any] | None) -> None:
    """Checks that the optimizer exists. mmengine builds it late, and does not name the missing one."""
    kind = ((optim_wrapper or {}).get('optimizer') or {}).get('type')
    if isinstance(kind, str) and OPTIMIZERS.get(kind) is None:
        known = sorted(name for name in OPTIMIZERS.module_dict if isinstance(name, str))
        raise ValueError(f'optim_wrapper.optimizer: no type {kind!r}{did_you_mean(kind, known)}')
