"""Writes checkpoints that hold data alone: whole, under their name at once, and over no other file."""

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch

from tokennorm.checkpoints.reading import CheckpointError, state_dict_in, what_torch_says
from tokennorm.version import __version__

_KEPT_META = ('dataset_meta', 'cfg', 'epoch', 'iter', 'seed', 'mmengine_version')


def for_publication(content: Any, source: str | Path) -> dict[str, Any]:
    """Of a runner's checkpoint what evaluating, predicting and training on from it take: the weights, the classes and
    the config.

    With mmengine's `EMAHook` the `state_dict` is the averaged one already, and the other is left out.

    Args:
        content: What `read_checkpoint` returns.
        source: Where it is from, for messages.

    Raises:
        CheckpointError: where it has no state dict, or one that is not finite.
    """
    state_dict = state_dict_in(content, source)
    broken = [key for key, value in state_dict.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise CheckpointError(f'{source} has values that are not finite in {", ".join(broken[:5])}')
    meta = content.get('meta') or {}
    kept = {key: meta[key] for key in _KEPT_META if key in meta}
    return dict(state_dict=state_dict, meta=kept | dict(tokennorm_version=__version__))


def to_bytes(content: dict[str, Any]) -> bytes:
    """The file of a checkpoint, the same for the same content.

    Raises:
        CheckpointError: where it could not be read again with `weights_only=True`.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    buffer.seek(0)
    try:
        torch.load(buffer, map_location='cpu', weights_only=True)
    except Exception as error:
        raise CheckpointError(f'what would be written is more than plain data: {what_torch_says(error)}') from error
    return buffer.getvalue()


def hashed_name(path: Path, content: bytes) -> Path:
    """NAME.pth to NAME-1a2b3c4d.pth, with the first 8 digits of the content's SHA-256, as OpenMMLab names its files."""
    return path.with_name(f'{path.name.removesuffix(".pth")}-{hashlib.sha256(content).hexdigest()[:8]}.pth')


def write_new(path: Path, content: bytes) -> None:
    """Writes a file that is not there yet; an interruption leaves none under this name.

    Raises:
        FileExistsError: where it is there.
    """
    if path.exists():
        raise FileExistsError(f'{path} is there already; remove it or name another file')
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f'.{path.name}.{os.getpid()}')
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
