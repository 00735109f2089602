"""Reads checkpoints without running code from them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from urllib.error import URLError

import torch
from torch import Tensor

from tokennorm.checkpoints.safe_unpickle import STAND_INS, to_plain

StateDict = dict[str, Tensor]
TRUST = 'TOKENNORM_TRUST_CHECKPOINT'
NOTE = 'last_checkpoint'  # mmengine writes the latest checkpoint's path into it


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read, or is not that of the model."""


def find_checkpoint(checkpoint: str | Path) -> str:
    """The file of a checkpoint that is named by itself, by an address or by the work folder of a training.

    Of a work folder it is the one that its `last_checkpoint` names, wherever the folder has been moved to; where there
    is no such file, the one of the highest epoch or iteration.

    Raises:
        FileNotFoundError: where there is no such file, and for a folder without checkpoints.
    """
    if _is_address(checkpoint):
        return str(checkpoint)
    if '://' in str(checkpoint):
        raise FileNotFoundError(f'checkpoint {checkpoint}: an address must begin with http:// or https://')
    path = Path(checkpoint).expanduser()
    if path.is_dir():
        return str(_latest(path))
    if not path.is_file():
        raise FileNotFoundError(f'checkpoint {path} is not there')
    return str(path)


def read_checkpoint(checkpoint: str | Path, map_location: Any = 'cpu') -> Any:
    """What is in a file or behind an http(s) address: tensors, numbers, strings, their containers, and mmengine's
    histories of numbers.

    A file that needs more is read where the environment's `TOKENNORM_TRUST_CHECKPOINT` names it, and only there.

    Args:
        checkpoint: As for `find_checkpoint`.
        map_location: torch's: where tensors go.

    Raises:
        FileNotFoundError: as `find_checkpoint`.
        ConnectionError: where the address cannot be reached.
        CheckpointError: for a file that is no checkpoint, or one that unpickling would run code from.
    """
    found = find_checkpoint(checkpoint)
    trusted = _is_trusted(found)
    try:
        with torch.serialization.safe_globals([] if trusted else STAND_INS):
            if _is_address(found):
                content = torch.hub.load_state_dict_from_url(found, map_location=map_location, weights_only=not trusted)
            else:
                content = torch.load(found, map_location=map_location, weights_only=not trusted)
        return content if trusted else to_plain(content)
    except URLError as error:
        raise ConnectionError(f'{found} could not be fetched: {error.reason}') from error
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        raise CheckpointError(f'{found} cannot be read as tensors alone: {_reason(error, found)}') from error


def read_state_dict(checkpoint: str | Path) -> StateDict:
    """The state dict in a file or behind an http(s) address.

    Checkpoints of mmengine's runner ('state_dict') and of others ('model') are unwrapped, and a wrapper's 'module.' is
    taken off.

    Raises:
        FileNotFoundError, OSError: as `read_checkpoint`.
        CheckpointError: as `read_checkpoint`, and for a file without a state dict.
    """
    return state_dict_in(read_checkpoint(checkpoint), checkpoint)


def state_dict_in(content: Any, source: str | Path) -> StateDict:
    """As `read_state_dict`, of what `read_checkpoint` has read from `source`."""
    for wrapper in ('state_dict', 'model'):
        content = content.get(wrapper, content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(
            f'{source} holds no state dict: a dict of tensors, alone or as its "state_dict" or "model"'
        )
    return {key.removeprefix('module.'): value for key, value in content.items()}


def trained_classes(checkpoint: str | Path) -> list[str] | None:
    """The class names that a checkpoint of a runner was trained with; None where it does not say.

    Raises:
        FileNotFoundError, OSError, CheckpointError: as `read_checkpoint`.
    """
    content = read_checkpoint(checkpoint)
    meta = content.get('meta') if isinstance(content, dict) else None
    classes = common_meta((meta or {}).get('dataset_meta')).get('classes')
    return list(classes) if classes else None


def common_meta(meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any]:
    """A dataset's `metainfo`. Of concatenated datasets it is a list where they differ: the first of it if they have the
    same classes, else nothing."""
    metas = meta if isinstance(meta, list | tuple) else [meta or {}]
    classes = [list(one.get('classes') or ()) for one in metas]
    return metas[0] if metas and all(names == classes[0] for names in classes) else {}


def noted_checkpoint(folder: Path) -> Path | None:
    """What the `last_checkpoint` of a work folder names: the file of that name in the folder, wherever it has been
    moved or copied to, else that of the path as it stands, which may not be there. None without such a note."""
    note = folder / NOTE
    if not note.is_file():
        return None
    noted = Path(note.read_text().strip())
    return folder / noted.name if (folder / noted.name).is_file() else noted


def _latest(folder: Path) -> Path:
    """The checkpoint that stands for a training: the noted one, else that of the highest epoch or iteration."""
    noted = noted_checkpoint(folder)
    if noted is not None and noted.is_file():
        return noted
    numbered = [
        path for path in folder.glob('*.pth') if path.stem.rpartition('_')[0] in ('epoch', 'iter') and path.is_file()
    ]
    numbered = {int(path.stem.rpartition('_')[2]): path for path in numbered if path.stem.rpartition('_')[2].isdigit()}
    if not numbered:
        raise FileNotFoundError(f'{folder} has no checkpoint: no {NOTE}, epoch_N.pth or iter_N.pth')
    return numbered[max(numbered)]


def _is_address(checkpoint: str | Path) -> bool:
    return str(checkpoint).startswith(('http://', 'https://'))


def _is_trusted(checkpoint: str) -> bool:
    named = os.environ.get(TRUST)
    if not named or _is_address(checkpoint):
        return named == checkpoint
    return os.path.realpath(named) == os.path.realpath(checkpoint)


def what_torch_says(error: Exception) -> str:
    """The one line that counts of an error of `torch.load`."""
    text = str(error)
    for before in ('WeightsUnpickler error: ', 'from a trusted source.'):
        if text.partition(before)[2].strip():
            return text.partition(before)[2].strip().splitlines()[0]
    return f'{type(error).__name__} {text}'.strip().splitlines()[0]


def _reason(error: Exception, checkpoint: str) -> str:
    said = what_torch_says(error)
    if isinstance(error, EOFError) or 'PytorchStreamReader failed' in said:
        return 'it is empty, cut off, or no checkpoint of torch.save'
    if not isinstance(error, UnpicklingError | ValueError):  # torch's for what it does not allow, and ours
        return said
    return f'{said}\nWhat else it holds could run code. If you trust whoever made it, set {TRUST}={checkpoint}'
