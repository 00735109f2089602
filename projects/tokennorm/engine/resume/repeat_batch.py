"""Runs an iteration again that `NonFiniteHook` has saved, and says where the numbers go wrong."""

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmdet.structures.bbox import HorizontalBoxes
from mmdet.structures.mask import BitmapMasks, PolygonMasks
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData, PixelData
from torch import Tensor, nn

from tokennorm.checkpoints import check_fit
from tokennorm.messages import shorten

MOST_NAMES = 16


def _dtype_of_numbers(*args: Any) -> np.dtype:
    """numpy's dtype, but not that of objects, whose arrays would take what a file says for addresses."""
    dtype = np.dtype(*args)
    if dtype.hasobject:
        raise ValueError(f'an array of {dtype}')
    return dtype


_CLASSES = [
    DetDataSample,
    HorizontalBoxes,
    BitmapMasks,
    PolygonMasks,
    InstanceData,
    PixelData,
    np.ndarray,
    (_dtype_of_numbers, 'numpy.dtype'),
    np.zeros(1).__reduce__()[0],  # what arrays and their scalars are pickled by
    np.float64(1).__reduce__()[0],
    *(type(np.dtype(kind)) for kind in ('f4', 'f8', 'i4', 'i8', 'u1', '?')),
]


def load_batch(path: str | Path) -> dict[str, Any]:
    """What `NonFiniteHook` wrote: iteration, reason, images, losses, batches and state_dict.

    The file is read without running code from it: nothing but tensors, arrays and mmdet's structures.

    Raises:
        ValueError: for a file that is not one of the hook's.
    """
    try:
        with torch.serialization.safe_globals([*_CLASSES, *_classification_samples()]):
            saved = torch.load(path, map_location='cpu', weights_only=True)
    except Exception as error:  # whatever the bytes lead the unpickler to
        raise ValueError(f'{path} cannot be read as a saved batch: {error}') from error
    if not isinstance(saved, dict) or not {'batches', 'state_dict'} <= set(saved):
        raise ValueError(f'{path} is no batch that NonFiniteHook saved')
    return saved


def repeat_batch(cfg: Config, path: str | Path, device: str = 'cpu') -> list[str]:
    """Forward and backward of each saved batch, from its weights and random state.

    Args:
        cfg: The config of the training.
        path: The saved file.
        device: Where to compute. The numbers are the training's on the same kind of device alone.

    Returns:
        Lines with the losses, the first modules whose output is not finite, and the parameters whose gradient is not.

    Raises:
        ValueError: for a file that is not one of the hook's.
        CheckpointError: where the weights are not the config's.
    """
    saved = load_batch(path)
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    model_cfg = cfg.model.copy()
    if 'data_preprocessor' not in model_cfg and 'data_preprocessor' in cfg:
        model_cfg['data_preprocessor'] = cfg.data_preprocessor
    model = MODELS.build(model_cfg).to(device)
    check_fit(model, saved['state_dict'], str(path))
    model.load_state_dict(saved['state_dict'])
    model.train()
    lines = [f'{path}: iteration {saved["iteration"]}: {saved["reason"]}']
    for batch in saved['batches']:
        torch.set_rng_state(batch['random_state']['cpu'])
        if device != 'cpu' and 'cuda' in batch['random_state']:
            torch.cuda.set_rng_state(batch['random_state']['cuda'])
        lines += [f'batch of iteration {batch["iteration"]}', *_run(model, batch['data'], _autocast(cfg, device))]
    bad = [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    lines.append(f'gradients that are not finite: {shorten(bad, MOST_NAMES) or "none"}')
    return lines


def _run(model: nn.Module, data: Any, autocast: Any) -> list[str]:
    """One forward and backward pass."""
    found: list[str] = []
    handles = [
        module.register_forward_hook(
            lambda module, args, out, name=name: None if _all_finite(out) else found.append(name or 'the model')
        )
        for name, module in model.named_modules()
    ]
    with autocast:
        losses = model._run_forward(model.data_preprocessor(data, True), mode='loss')
    for handle in handles:
        handle.remove()
    total, log_vars = model.parse_losses(losses)
    total.backward()
    lines = [f'  {name} {float(value.detach()):g}' for name, value in log_vars.items()]
    names = shorten(found, MOST_NAMES) or 'none'
    return [*lines, f'  modules whose output is not finite, in the order of their ends: {names}']


def _all_finite(out: Any) -> bool:
    if isinstance(out, Tensor):
        return not out.is_floating_point() or bool(out.isfinite().all())
    values: Iterable[Any] = out.values() if isinstance(out, dict) else out if isinstance(out, list | tuple) else ()
    return all(map(_all_finite, values))


def _autocast(cfg: Config, device: str) -> Any:
    """What the training computed under."""
    if cfg.optim_wrapper.type != 'AmpOptimWrapper':
        return nullcontext()
    dtype = cfg.optim_wrapper.get('dtype')
    return torch.autocast(torch.device(device).type, dtype=getattr(torch, dtype) if dtype else None)


def _classification_samples() -> list[type]:
    """Those of mmpretrain, where it is installed."""
    try:
        from mmengine.structures import LabelData
        from mmpretrain.structures import DataSample
    except ImportError:
        return []
    return [DataSample, LabelData]
