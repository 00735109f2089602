"""Writes checkpoints that hold only data: completely or not at all, and never over another file."""

import ast
import io
import json
import re
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch

from tokennorm.base.files import write_atomically
from tokennorm.base.messages import UserError
from tokennorm.checkpoints.locating import SAFETENSORS
from tokennorm.checkpoints.safe_reading import CheckpointError, state_dict_in
from tokennorm.version import __version__

_KEPT_META = ('dataset_meta', 'thresholds', 'cfg', 'epoch', 'iter', 'seed', 'mmengine_version')


def for_publication(content: Any, source: str | Path) -> dict[str, Any]:
    """Returns the parts of a runner's checkpoint that evaluation, prediction and fine-tuning need.

    These are the weights, the classes and the config, with file names instead of absolute paths, which name users and
    customers. With mmengine's `EMAHook`, `state_dict` already holds the averaged weights; the others are dropped.
    """
    state_dict = state_dict_in(content, source)
    broken = [key for key, value in state_dict.items() if value.is_floating_point() and not value.isfinite().all()]
    if broken:
        raise CheckpointError(f'{source} has values that are not finite in {", ".join(broken[:5])}')
    meta = content.get('meta') or {}
    kept = {key: meta[key] for key in _KEPT_META if key in meta}
    if isinstance(kept.get('cfg'), str):
        kept['cfg'] = _without_local_paths(kept['cfg'])
    return dict(state_dict=state_dict, meta=kept | dict(tokennorm_version=__version__))


def _without_local_paths(cfg: str) -> str:
    """A config with the names of files and folders in place of absolute paths; unchanged if it is not Python."""
    lines = cfg.encode().splitlines(keepends=True)
    with suppress(SyntaxError):
        strings = (node for node in ast.walk(ast.parse(cfg)) if isinstance(node, ast.Constant))
        for node in sorted(strings, key=lambda one: (one.lineno, one.col_offset), reverse=True):
            value = node.value if isinstance(node.value, str) and node.lineno == node.end_lineno else ''
            absolute = PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()
            if absolute or value.startswith('file://'):
                name = repr(re.split(r'[\\/]', value.rstrip('\\/'))[-1] or value).encode()
                line = lines[node.lineno - 1]
                lines[node.lineno - 1] = line[: node.col_offset] + name + line[node.end_col_offset :]
    return b''.join(lines).decode()


def to_bytes(content: dict[str, Any], suffix: str = '.pth') -> bytes:
    """The file of a checkpoint, the same for the same content."""
    if suffix == SAFETENSORS:
        from safetensors.torch import save

        tensors = {key: value.detach().clone().contiguous() for key, value in content['state_dict'].items()}
        return save(tensors, {'meta': json.dumps(content.get('meta') or {})})  # several entries have a random order
    buffer = io.BytesIO()
    torch.save(content, buffer)
    buffer.seek(0)
    if others := torch.serialization.get_unsafe_globals_in_checkpoint(buffer):
        raise CheckpointError(f'the checkpoint would hold more than plain data: {", ".join(others)}')
    return buffer.getvalue()


def write_new(path: Path, content: bytes) -> None:
    """Writes a file that does not exist yet. An interruption leaves no file of this name."""
    if path.exists():
        raise UserError(f'{path} already exists; remove it or name another file')
    write_atomically(path, content)
