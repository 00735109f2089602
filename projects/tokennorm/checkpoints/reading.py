"""Reads checkpoints without running code from them."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlparse

import torch
from torch import Tensor

from tokennorm.checkpoints.hub import fetch_from_hub, is_hub_name
from tokennorm.checkpoints.packaged import is_packaged, packaged_file
from tokennorm.checkpoints.safe_unpickle import read_data
from tokennorm.checkpoints.safetensors_files import SUFFIX, read_safetensors
from tokennorm.checkpoints.work_dir import best_checkpoint
from tokennorm.published import PUBLISHED

StateDict = dict[str, Tensor]
_FOREIGN = {  # first bytes of files that are often given in place of a checkpoint
    b'\xff\xd8\xff': 'a JPEG image',
    b'\x89PNG': 'a PNG image',
    b'<': 'HTML or XML, such as the page of a failed download',
    b'version https://git-lfs': 'a pointer of Git LFS; `git lfs pull` gets the file',
}


class CheckpointError(RuntimeError):
    """A checkpoint cannot be read, or does not fit the model."""


def find_checkpoint(checkpoint: str | Path) -> str:
    """The file or URL of a checkpoint, which is given as a file, a URL, a name on the Hub or a training's `work_dir`.

    - In a work directory it is the best checkpoint, `best_*.pth`, or the latest one where none was selected.
    - A model on the Hugging Face Hub, `hf-hub:owner/name` or `timm/name.tag`, is downloaded into huggingface_hub's
      cache.
    - A published detector's name (`published.PUBLISHED`) is its URL.
    - `pip:NAME` is the file of weights in a package of the Python index (`packaged.PACKAGES`).

    Raises:
        FileNotFoundError: if there is no such file or package, or no checkpoint in a directory.
        ConnectionError: if a model cannot be fetched from the Hub.
    """
    if is_packaged(checkpoint):
        return str(packaged_file(str(checkpoint)))
    if is_hub_name(checkpoint):
        return fetch_from_hub(str(checkpoint))
    if _is_url(checkpoint):
        return str(checkpoint)
    if '://' in str(checkpoint):
        raise FileNotFoundError(f'checkpoint {checkpoint}: a URL must begin with http:// or https://')
    path = Path(checkpoint).expanduser()
    if str(checkpoint) in PUBLISHED and not path.exists():
        return PUBLISHED[str(checkpoint)].url
    if path.is_dir():
        return str(best_checkpoint(path))
    if not path.is_file():
        raise FileNotFoundError(f'checkpoint {path} not found')
    return str(path)


def read_checkpoint(checkpoint: str | Path, map_location: Any = 'cpu') -> Any:
    """Reads a file or URL: tensors, numbers, strings, their containers, and mmengine's histories of numbers.

    A `.safetensors` file becomes `dict(state_dict=..., meta=...)`, as a runner's checkpoint has it. Objects of other
    classes in a pickled file become placeholders.

    Args:
        checkpoint: As for `find_checkpoint`.
        map_location: torch's: where tensors go.

    Raises:
        FileNotFoundError: as `find_checkpoint`.
        ConnectionError: if the URL cannot be reached.
        CheckpointError: for a file that is not a checkpoint.
    """
    found = find_checkpoint(checkpoint)
    path = _download(found) if _is_url(found) else Path(found)
    if path.suffix != SUFFIX:
        return _read_pickle(path, found, map_location)
    try:
        return read_safetensors(path, map_location)
    except (ValueError, ImportError) as error:
        raise CheckpointError(f'{found} cannot be read: {error}') from error


def _download(url: str) -> Path:
    """The file of a URL in torch's cache folder."""
    path = Path(torch.hub.get_dir(), 'checkpoints', Path(urlparse(url).path).name)
    if path.suffix == SUFFIX:  # the Hub names every file model.safetensors
        path = path.with_name(f'{hashlib.sha256(url.encode()).hexdigest()[:8]}-{path.name}')
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f'.{path.name}.lock').open('a') as lock:  # one rank downloads, and the others wait for its file
        with suppress(ImportError, OSError):  # Windows, and file systems without locks
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            _fetch(url, path)
    return path


def _fetch(url: str, path: Path) -> None:
    hashed = re.search(r'-([0-9a-f]{8,})\.', path.name)  # as torch and OpenMMLab name their files
    try:
        torch.hub.download_url_to_file(url, str(path), hashed and hashed[1])
    except (URLError, HTTPException) as error:
        raise ConnectionError(
            f'{url} could not be fetched: {getattr(error, "reason", error)}. Without a network, download it elsewhere '
            f'and save it as {path}'
        ) from error
    except RuntimeError as error:
        raise CheckpointError(f'{url} was damaged on its way, or is another file: {error}') from error


def _read_pickle(path: Path, found: str, map_location: Any) -> Any:
    with path.open('rb') as file:
        first = file.read(24)
    if not first.startswith((b'PK', b'\x80')):  # torch's formats: a zip archive, pickles
        kind = next((kind for start, kind in _FOREIGN.items() if first.startswith(start)), None)
        raise CheckpointError(f'{found} is not a checkpoint: it is {kind or f"empty, or begins with {first[:8]!r}"}')
    try:
        return read_data(path, map_location)
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        said = str(error).partition('WeightsUnpickler error: ')[2] or f'{type(error).__name__} {error}'
        said = said.strip().splitlines()[0]
        if isinstance(error, EOFError | KeyError | IndexError) or 'PytorchStreamReader' in said:
            said = 'it is cut off, damaged, or not written by torch.save'
        raise CheckpointError(f'{found} cannot be read as tensors only: {said}') from error


def read_state_dict(checkpoint: str | Path) -> StateDict:
    """Reads the state dict of a file or URL, with the errors of `read_checkpoint`.

    Checkpoints of mmengine's runner ('state_dict') and of others ('model') are unwrapped, and the prefix 'module.' of a
    distributed wrapper is removed.
    """
    return state_dict_in(read_checkpoint(checkpoint), checkpoint)


def state_dict_in(content: Any, source: str | Path) -> StateDict:
    """The state dict in what `read_checkpoint` has read from `source`, as `read_state_dict`."""
    for wrapper in ('state_dict', 'model'):
        content = content.get(wrapper, content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(
            f'{source} holds no state dict: a dict of tensors, alone or as its "state_dict" or "model"'
        )
    return {key.removeprefix('module.'): value for key, value in content.items()}


def trained_classes(checkpoint: str | Path) -> list[str] | None:
    """The class names that a checkpoint was trained with; None if it has none."""
    classes = trained_meta(read_checkpoint(checkpoint)).get('classes')
    return list(classes) if classes else None


def trained_meta(content: Any) -> Mapping[str, Any]:
    """The `metainfo` of the dataset in what `read_checkpoint` has read; {} if it has none."""
    meta = (content.get('meta') if isinstance(content, dict) else None) or {}
    of_mmdet_2 = dict(classes=meta['CLASSES']) if meta.get('CLASSES') else None
    return common_meta(meta.get('dataset_meta') or of_mmdet_2)


def describe_checkpoint(checkpoint: str | Path) -> str:
    """Reads a checkpoint, and returns `describe` of it."""
    return describe(read_checkpoint(checkpoint), checkpoint)


def describe(content: Any, checkpoint: str | Path) -> str:
    """Returns a file or URL with its epoch, its metric if it is the best of its run, and the config that it is of."""
    meta = content.get('meta') if isinstance(content, dict) else None
    facts = [f'{key} {meta[key]}' for key in ('epoch', 'iter') if meta and meta.get(key)][:1]
    selected = re.match(r'best_(.+)_(epoch|iter)_(\d+)$', Path(checkpoint).stem)
    if selected:  # mmengine notes the next iteration in it
        facts = [f'{selected[2]} {selected[3]}']
    score = ((content.get('message_hub') or {}).get('runtime_info') or {}).get('best_score') if selected else None
    if selected and score is not None:
        facts.append(f'the best of its training run, {selected[1]} {float(score):.3f}')
    if meta and meta.get('experiment_name'):  # the config's name and the time
        facts.append(f'config {re.sub(r"_[0-9]{8}_[0-9]{6}$", "", str(meta["experiment_name"]))}')
    return str(checkpoint) + (f' ({", ".join(facts)})' if facts else '')


def common_meta(meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any]:
    """A dataset's `metainfo`; of concatenated datasets the first, if all have equal classes, else {}."""
    metas: Sequence[Mapping[str, Any]] = meta if isinstance(meta, list | tuple) else [meta or {}]  # type: ignore[list-item]
    classes = [list(one.get('classes') or ()) for one in metas]
    return metas[0] if metas and all(names == classes[0] for names in classes) else {}


def _is_url(checkpoint: str | Path) -> bool:
    return str(checkpoint).startswith(('http://', 'https://'))
