"""Mixed precision of a detector: features in half precision, heads in float32."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.model import is_model_wrapper
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from torch import nn

from tokennorm.config.tree import is_classifier
from tokennorm.messages import UserError
from tokennorm.registry import OPTIM_WRAPPERS, type_name

DTYPES = dict(bf16='bfloat16', fp16='float16')


def use_mixed_precision(cfg: Config, kind: bool | str) -> None:
    """Trains with automatic mixed precision in 'bf16' or 'fp16'; True is bf16 where the GPU has it."""
    if get_device() == 'cpu':
        raise UserError('--amp needs a GPU, and this run is on the CPU, where half precision is slower; leave it out')
    if kind is True:
        kind = 'bf16' if torch.cuda.is_bf16_supported() else 'fp16'
    # Gradients of bfloat16 have the range of float32, and need no scaling. A scaler would silently skip steps with
    # gradients that are not finite, which NonFiniteHook reports.
    scale = 'dynamic' if kind == 'fp16' else dict(enabled=False)
    wrapper = 'AmpOptimWrapper' if is_classifier(cfg) else 'tokennorm.FeatureAmpOptimWrapper'
    cfg.optim_wrapper.update(type=wrapper, dtype=DTYPES[kind], loss_scale=scale)


def use_full_precision_on_cpu(cfg: Config) -> None:
    """Replaces the mixed precision of a config, which needs a GPU, on a CPU."""
    wrapper = cfg.get('optim_wrapper') or {}
    if get_device() != 'cpu' or not type_name(wrapper).endswith('AmpOptimWrapper'):
        return
    for key in {'dtype', 'loss_scale', 'use_fsdp'} & set(wrapper):
        del wrapper[key]
    wrapper['type'] = 'OptimWrapper'


@OPTIM_WRAPPERS.register_module()
class FeatureAmpOptimWrapper(AmpOptimWrapper):
    """`AmpOptimWrapper` that computes `extract_feat`, a detector's backbone and neck, under autocast.

    Heads and losses get float32 features: mmcv's compiled focal loss and RoIAlign have no bfloat16, and box coordinates
    would be rounded in half precision.

    Args:
        dtype: 'bfloat16' or 'float16'.
        loss_scale: As in `AmpOptimWrapper`.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Context of one training step."""
        model = model.module if is_model_wrapper(model) else model
        if not isinstance(model.__dict__.get('extract_feat'), MethodType):
            model.extract_feat = MethodType(_extract_feat, model)  # a method, which copies of the model rebind
        model._feature_dtype = self.cast_dtype
        try:
            with OptimWrapper.optim_context(self, model):
                yield
        finally:
            model._feature_dtype = None


def _extract_feat(self: nn.Module, inputs: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    extract_feat = type(self).extract_feat
    if self._feature_dtype is None:
        return extract_feat(self, inputs, *args, **kwargs)
    with torch.autocast(inputs.device.type, dtype=self._feature_dtype):
        features = extract_feat(self, inputs, *args, **kwargs)
    return _to_float32(features)


def _to_float32(features: Any) -> Any:
    if isinstance(features, torch.Tensor):
        return features.float() if features.is_floating_point() else features
    if isinstance(features, dict):
        return {key: _to_float32(value) for key, value in features.items()}
    return type(features)(map(_to_float32, features)) if isinstance(features, list | tuple) else features
