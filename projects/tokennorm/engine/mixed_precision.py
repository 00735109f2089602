"""Mixed precision of a detector: features in half precision, heads in float32."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from mmengine.optim import AmpOptimWrapper, OptimWrapper
from mmengine.utils import apply_to
from torch import nn

from tokennorm.engine.distributed import unwrapped
from tokennorm.registry import OPTIM_WRAPPERS


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
        model = unwrapped(model)
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
    return apply_to(features, torch.is_tensor, lambda x: x.float() if x.is_floating_point() else x)
