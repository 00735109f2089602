"""Reads checkpoints without running code from them, and loads them whole or not at all."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from mmengine.logging import HistoryBuffer, print_log
from torch import Tensor, nn

StateDict = dict[str, Tensor]


def read_state_dict(checkpoint: str | Path) -> StateDict:
    """The state dict in a file or behind an http(s) address.

    Checkpoints of mmengine's runner ('state_dict') and of others ('model') are unwrapped, and of a detector's only the
    backbone's part is returned, without its prefix.

    Raises:
        FileNotFoundError: where there is no such file.
        RuntimeError: for a file that is no checkpoint, or one that unpickling would run code from.
    """
    checkpoint = str(checkpoint)
    remote = checkpoint.startswith(('http://', 'https://'))
    if not remote and not Path(checkpoint).is_file():
        raise FileNotFoundError(f'checkpoint {checkpoint} is not there; check init_cfg.checkpoint')
    try:
        with torch.serialization.safe_globals(_runner_globals()):
            if remote:
                content = torch.hub.load_state_dict_from_url(checkpoint, map_location='cpu', weights_only=True)
            else:
                content = torch.load(checkpoint, map_location='cpu', weights_only=True)
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        reason = str(error).partition('WeightsUnpickler error: ')[2] or f'{type(error).__name__} {error}'
        raise RuntimeError(f'{checkpoint} cannot be read as tensors alone: {reason.splitlines()[0]}') from error
    for wrapper in ('state_dict', 'model'):
        content = content.get(wrapper, content)
    backbone = {key.removeprefix('backbone.'): v for key, v in content.items() if key.startswith('backbone.')}
    return backbone or content


def load_pretrained(model: nn.Module, checkpoint: str | Path, convert: Callable[[StateDict], StateDict]) -> None:
    """Fills every parameter and buffer of `model` from a checkpoint, and logs what was left out of it.

    Args:
        model: The backbone.
        checkpoint: A file or an address.
        convert: The checkpoint's state dict to the model's keys; it may drop what the model has no use for.

    Raises:
        RuntimeError: where parameters of the model would stay at their random start, or others would be left over.
    """
    state_dict = read_state_dict(checkpoint)
    converted = convert(state_dict)
    expected = model.state_dict()
    missing = sorted(set(expected) - set(converted))
    unexpected = sorted(set(converted) - set(expected))
    resized = [
        f'{key} ({tuple(converted[key].shape)} in the file, {tuple(value.shape)} in the model)'
        for key, value in expected.items()
        if key in converted and converted[key].shape != value.shape
    ]
    problems = [('missing', missing), ('unexpected', unexpected), ('of another shape', resized)]
    if any(keys for _, keys in problems):
        listed = '\n'.join(f'  {len(keys)} {what}: {_shorten(keys)}' for what, keys in problems if keys)
        raise RuntimeError(
            f'{checkpoint} does not fit {type(model).__name__}:\n{listed}\n'
            'The norms, the stem, arch, out_type and pretrain_img_size of the config must be those it was trained with.'
        )
    model.load_state_dict(converted)
    left_out = sum(v.numel() for v in state_dict.values()) - sum(v.numel() for v in converted.values())
    print_log(
        f'{type(model).__name__}: all {len(expected)} tensors loaded from {checkpoint}; '
        f'{left_out:,} of its values have no place in this model',
        logger='current',
    )


def _shorten(keys: list[str], most: int = 8) -> str:
    more = f' and {len(keys) - most} more' if len(keys) > most else ''
    return ', '.join(keys[:most]) + more


def _runner_globals() -> list:
    """What mmengine's runner puts into checkpoints beside tensors: numbers, and buffers of the scalars it logged."""
    number, array = np.float64(0), np.empty(0)
    numpy_types = [np.ndarray, np.dtype, *(type(np.dtype(t)) for t in ('f8', 'f4', 'i8', 'i4', 'b1'))]
    rebuild = [number.__reduce__()[0], array.__reduce__()[0]]
    return [HistoryBuffer, (_statistic, 'builtins.getattr'), *numpy_types, *rebuild]


def _statistic(owner: type, name: str) -> Callable:
    """Stands for `getattr` in a checkpoint: only the statistics that HistoryBuffer's instances refer to."""
    if owner is HistoryBuffer and name in ('current', 'max', 'mean', 'min'):
        return getattr(owner, name)
    raise RuntimeError(f'the file asks for the attribute {name} of {owner}')
