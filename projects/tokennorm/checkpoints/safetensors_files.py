"""Checkpoints as `.safetensors` files: weights as tensors, a runner's `meta` as JSON in the metadata.

The format is 8 bytes with the header's length, the header as JSON, and the tensors' bytes. A file cannot hold code.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SUFFIX = '.safetensors'


def read_safetensors(path: str | Path, map_location: Any = 'cpu') -> dict[str, Any]:
    """Reads a file as `dict(state_dict=..., meta=...)`, as a runner's checkpoint has it.

    `meta` is what `safetensors_bytes` wrote. Metadata of other programs is ignored.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(f'{path} needs the package safetensors: pip install safetensors') from error
    try:
        with safe_open(path, framework='pt') as file:
            metadata = file.metadata() or {}
            state_dict = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f'the file is cut off or damaged: {error}') from error
    if map_location is not None and not callable(map_location) and not isinstance(map_location, Mapping):
        state_dict = {key: value.to(map_location) for key, value in state_dict.items()}
    return dict(state_dict=state_dict, meta=_read_meta(metadata))


def safetensors_bytes(content: Mapping[str, Any]) -> bytes:
    """The `.safetensors` file of `dict(state_dict=..., meta=...)`, the same for the same content."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise ImportError('--safetensors needs the package safetensors: pip install safetensors') from error
    try:
        metadata = {'format': 'pt', 'meta': json.dumps(content.get('meta') or {})}
    except TypeError as error:
        raise ValueError(f'the metadata is not plain data: {error}') from error
    written = save({key: value.detach().clone().contiguous() for key, value in content['state_dict'].items()}, metadata)
    (length,) = struct.unpack('<Q', written[:8])
    header = json.dumps(json.loads(written[8 : 8 + length]), sort_keys=True).encode()  # metadata comes in random order
    header += b' ' * (-len(header) % 8)  # the tensors stay aligned
    return struct.pack('<Q', len(header)) + header + written[8 + length :]


def _read_meta(metadata: Mapping[str, str]) -> dict[str, Any]:
    """A runner's `meta` from a file's metadata; {} for metadata of other programs."""
    try:
        meta = dict(json.loads(metadata['meta']))
        dataset_meta = meta.get('dataset_meta', {})
        if 'classes' in dataset_meta:
            dataset_meta['classes'] = tuple(dataset_meta['classes'])
        if isinstance(dataset_meta.get('palette'), list):  # may be a name; mmdet draws with tuples only
            dataset_meta['palette'] = [tuple(color) for color in dataset_meta['palette']]
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    return meta
