"""Reads checkpoints without running code from them, and loads them whole or not at all."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from mmengine.logging import print_log
from torch import Tensor, nn

from tokennorm.checkpoints.layer_norm_start import with_layer_norm_start

StateDict = dict[str, Tensor]


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read, or is not that of the model."""


def read_checkpoint(checkpoint: str | Path) -> Any:
    """What is in a file or behind an http(s) address: tensors, numbers, strings and their containers.

    Raises:
        FileNotFoundError: where there is no such file.
        OSError: where the address cannot be reached.
        CheckpointError: for a file that is no checkpoint, or one that unpickling would run code from.
    """
    checkpoint = str(checkpoint)
    remote = checkpoint.startswith(('http://', 'https://'))
    if not remote and not Path(checkpoint).is_file():
        raise FileNotFoundError(f'checkpoint {checkpoint} is not there')
    try:
        with torch.serialization.safe_globals([(_Ignored, name) for name in _RUNNER_GLOBALS]):
            if remote:
                content = torch.hub.load_state_dict_from_url(checkpoint, map_location='cpu', weights_only=True)
            else:
                content = torch.load(checkpoint, map_location='cpu', weights_only=True)
    except URLError as error:
        raise OSError(f'{checkpoint} could not be fetched: {error.reason}') from error
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        reason = str(error).partition('WeightsUnpickler error: ')[2] or f'{type(error).__name__} {error}'
        reason = reason.strip().splitlines()[0]
        raise CheckpointError(f'{checkpoint} cannot be read as tensors alone: {reason}') from error
    return content


def read_state_dict(checkpoint: str | Path) -> StateDict:
    """The state dict in a file or behind an http(s) address.

    Checkpoints of mmengine's runner ('state_dict') and of others ('model') are unwrapped, and a wrapper's 'module.' is
    taken off.

    Raises:
        FileNotFoundError, OSError: as `read_checkpoint`.
        CheckpointError: as `read_checkpoint`, and for a file without a state dict.
    """
    content = read_checkpoint(checkpoint)
    for wrapper in ('state_dict', 'model'):
        content = content.get(wrapper, content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(
            f'{checkpoint} holds no state dict: a dict of tensors, alone or as its "state_dict" or "model"'
        )
    return {key.removeprefix('module.'): value for key, value in content.items()}


def load_from_init_cfg(
    model: nn.Module, init_cfg: Mapping[str, Any], convert: Callable[[StateDict], StateDict]
) -> None:
    """`load_pretrained` from `dict(type='Pretrained', checkpoint=...)`.

    Raises:
        ValueError: for any other form of `init_cfg`, of which mmengine's loader would take what fits and no more.
    """
    if not isinstance(init_cfg, Mapping) or set(init_cfg) != {'type', 'checkpoint'} or init_cfg['type'] != 'Pretrained':
        raise ValueError(f"init_cfg={init_cfg} must be dict(type='Pretrained', checkpoint=...), a file or an address")
    load_pretrained(model, init_cfg['checkpoint'], convert)


def load_pretrained(model: nn.Module, checkpoint: str | Path, convert: Callable[[StateDict], StateDict]) -> list[str]:
    """Fills every parameter and buffer of a backbone from a checkpoint, and logs what was left out of it or changed.

    Of a detector's checkpoint it takes the backbone's part.

    Args:
        model: The backbone.
        checkpoint: A file or an address.
        convert: The checkpoint's state dict to the model's keys; it may drop what the model has no use for.

    Returns:
        The keys of the checkpoint that were dropped or whose values were changed, rather than renamed.

    Raises:
        CheckpointError: where parameters of the model would stay at their random start, or others would be left over.
    """
    state_dict = read_state_dict(checkpoint)
    backbone = {key.removeprefix('backbone.'): v for key, v in state_dict.items() if key.startswith('backbone.')}
    state_dict = backbone or state_dict
    published = convert(state_dict)
    converted = with_layer_norm_start(model, published)
    check_fit(model, converted, checkpoint)
    model.load_state_dict(converted)
    as_they_were = {id(value) for value in converted.values()}
    changed = [key for key, value in state_dict.items() if id(value) not in as_they_were]
    started = (
        f', {len(converted) - len(published)} of DTN at its LayerNorm start' if len(converted) > len(published) else ''
    )
    print_log(
        f'{type(model).__name__}: all {len(published)} tensors loaded from {checkpoint}{started}. '
        f'Left out of the file, or changed: {_shorten(changed) if changed else "nothing"}',
        logger='current',
    )
    return changed


def check_fit(model: nn.Module, state_dict: StateDict, source: str | Path) -> None:
    """Compares the keys and shapes of a state dict with those of a model.

    Raises:
        CheckpointError: with what of `source` is missing, unexpected or of another shape.
    """
    expected = model.state_dict()
    missing = sorted(set(expected) - set(state_dict))
    unexpected = sorted(set(state_dict) - set(expected))
    reshaped = [
        f'{key} ({tuple(state_dict[key].shape)} in the file, {tuple(value.shape)} in the model)'
        for key, value in expected.items()
        if key in state_dict and state_dict[key].shape != value.shape
    ]
    problems = [('missing', missing), ('unexpected', unexpected), ('of another shape', reshaped)]
    if any(keys for _, keys in problems):
        listed = '\n'.join(f'  {len(keys)} {what}: {_shorten(keys)}' for what, keys in problems if keys)
        raise CheckpointError(
            f'{source} does not fit {type(model).__name__}:\n{listed}\n'
            'The norms, the stem, arch, out_type and pretrain_img_size of the config must be those it was trained with.'
        )


def _shorten(keys: list[str], most: int = 8) -> str:
    more = f' and {len(keys) - most} more' if len(keys) > most else ''
    return ', '.join(keys[:most]) + more


class _Ignored:
    """Stands for what mmengine's runner saves beside tensors, the numbers and histories that it logged: it does nothing
    with what a file gives it, so that no file can do anything with it."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


_RUNNER_GLOBALS = [
    'builtins.bytes',
    'builtins.getattr',
    'mmengine.logging.history_buffer.HistoryBuffer',
    'numpy.ndarray',
    'numpy.dtype',
    *(f'numpy.{core}.multiarray.{name}' for core in ('core', '_core') for name in ('scalar', '_reconstruct')),
]
