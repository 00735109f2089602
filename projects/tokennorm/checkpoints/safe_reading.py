"""Reads checkpoints without running code from them."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokennorm.base.messages import shorten
from tokennorm.checkpoints.layouts import StateDict
from tokennorm.checkpoints.locating import SAFETENSORS, URL, CheckpointError, download, find_checkpoint
from tokennorm.checkpoints.safe_unpickle import read_data
from tokennorm.findings import current, is_judged
from tokennorm.findings.elsewhere import NON_FINITE_WEIGHTS
from tokennorm.registry.compat import make_mmengine_read_with

_DAMAGED = ('PytorchStreamReader', 'Unsupported operand', 'EOFError', 'KeyError', 'IndexError')  # in torch's errors
WRAPPERS = ('state_dict', 'model')
EMA = 'ema_state_dict'  # of mmengine's EMAHook
_NEVER_INFINITE = ('weight', 'bias', 'running_mean', 'running_var', 'gamma', 'beta')
_FOREIGN = {  # first bytes of files that are often given in place of a checkpoint
    b'\xff\xd8\xff': 'a JPEG image',
    b'\x89PNG': 'a PNG image',
    b'<': 'HTML or XML, such as the page of a failed download',
    b'version https://git-lfs': 'a pointer of Git LFS; `git lfs pull` gets the file',
}


def read_checkpoint(checkpoint: str | Path, map_location: Any = 'cpu') -> Any:
    """Reads a file or URL: tensors, numbers, strings, their containers, and mmengine's histories of numbers.

    A `.safetensors` file becomes `dict(state_dict=..., meta=...)`, as a runner's checkpoint has it. In a pickled file,
    objects of other classes are read as dicts; `map_location` is torch's. A file that is not a checkpoint, a URL that
    cannot be reached, and weights that are not finite raise `CheckpointError`; a command may allow the latter.
    """
    source = find_checkpoint(checkpoint)
    path = download(source) if source.startswith(URL) else Path(source)
    if source.startswith(URL):
        source += f' (saved as {path}; delete that to fetch it again)'
    is_safetensors = path.suffix == SAFETENSORS
    content = _read_safetensors(path, source) if is_safetensors else _read_pickle(path, source, map_location)
    _check_finite(content, source)
    return content


def _check_finite(content: Any, source: str) -> None:
    """Refuses weights that are NaN or infinite: a detector with them finds nothing, silently. Commands have a rule."""
    whole = content if isinstance(content, Mapping) else {}
    weights = next((whole[name] for name in WRAPPERS if name in whole), whole)
    tensors = [
        (prefix + str(key), value)
        for prefix, entries in (('', weights), (f'{EMA}.', whole.get(EMA)))
        for key, value in (entries.items() if isinstance(entries, Mapping) else ())
        if isinstance(value, Tensor)
    ]
    if names := [name for name, value in tensors if not is_usable(name, value)]:
        text = f'{source} has values that are not finite, NaN or infinite, in {len(names)} of {len(tensors)} tensors'
        if not is_judged():
            raise CheckpointError(f'{text}: {shorten(names, 3)}. Its training diverged, or the file is damaged')
        NON_FINITE_WEIGHTS.report('', text, names)
        current().show()
        current().stop()


def is_usable(name: str, value: Tensor) -> bool:
    """Returns whether all values of a tensor are finite, or infinite on purpose.

    Masks of attention are 0 and -inf, and ranges that have seen no value yet are inf. They hold no NaN, and one finite
    value at most; weights, biases and running statistics are never infinite.
    """
    if value.is_complex():
        value = torch.view_as_real(value)
    if not value.is_floating_point() or value.is_meta or value.layout != torch.strided or not value.numel():
        return True
    if value.dtype.itemsize < 4:
        value = value.float()
    if value.sum().isfinite():  # the sum has every NaN and infinity; it may overflow without them
        return True
    is_finite = value.isfinite()
    if is_finite.all():
        return True
    may_be_infinite = name.rpartition('.')[2] not in _NEVER_INFINITE
    finite = value[is_finite]
    return may_be_infinite and not value.isnan().any() and bool((finite == finite[:1]).all())


def _read_pickle(path: Path, source: str, map_location: Any) -> Any:
    with path.open('rb') as file:
        first = file.read(24)
    if not first.startswith((b'PK', b'\x80')):  # torch's formats: a zip archive, pickles
        content = next((content for start, content in _FOREIGN.items() if first.startswith(start)), None)
        content = content or f'empty, or begins with {first[:8]!r}'
        raise CheckpointError(f'{source} is not a checkpoint: it is {content}')
    try:
        return read_data(path, map_location)
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        said = str(error).partition('WeightsUnpickler error: ')[2] or f'{type(error).__name__} {error}'
        said = said.strip().splitlines()[0]
        if called := re.search(r'GLOBAL (\S+)', str(error)):
            said = f'reading it would call {called[1]}, which is code and not data; use a file from another source'
        elif any(word in said for word in _DAMAGED):
            said = 'it is cut off, damaged, or not written by torch.save'
        raise CheckpointError(f'{source} cannot be read as tensors only: {said}') from error


def _read_safetensors(path: Path, source: str) -> dict[str, Any]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise CheckpointError(f'{source} needs the package safetensors: pip install safetensors') from error
    try:
        with safe_open(path, framework='pt') as file:
            metadata = file.metadata() or {}
            state_dict = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f'{source} cannot be read: it is cut off or damaged: {error}') from error
    return dict(state_dict=state_dict, meta=_read_meta(metadata))


def _read_meta(metadata: Mapping[str, str]) -> dict[str, Any]:
    """A runner's `meta` from a file's metadata; {} for metadata of other programs."""
    try:
        meta = dict(json.loads(metadata['meta']))
        dataset_meta = meta.get('dataset_meta', {})
        if 'classes' in dataset_meta:
            dataset_meta['classes'] = tuple(dataset_meta['classes'])
        if isinstance(dataset_meta.get('palette'), list):  # may be a name; mmdet draws with tuples only
            dataset_meta['palette'] = [tuple(color) for color in dataset_meta['palette']]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}
    return meta


def read_state_dict(checkpoint: str | Path) -> StateDict:
    """Reads the state dict of a file or URL (`state_dict_in`), with the errors of `read_checkpoint`."""
    return state_dict_in(read_checkpoint(checkpoint), checkpoint)


def state_dict_in(content: Any, source: str | Path) -> StateDict:
    """The state dict in what `read_checkpoint` has read from `source`.

    Checkpoints of mmengine's runner ('state_dict') and of others ('model') are unwrapped, and the prefixes of wrappers
    are removed: 'module.' (distributed), '_orig_mod.' (compiled), and 'model.' in files of Lightning.
    """
    whole = content if isinstance(content, dict) else {}
    for wrapper in WRAPPERS:
        content = content.get(wrapper, content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not content or not all(isinstance(v, Tensor) for v in content.values()):
        others = _weight_entries(whole)
        hint = f'save its "{others[0]}" as a file' if others else 'of a pickled module save its state_dict()'
        raise CheckpointError(
            f'{source} holds no state dict, a dict of tensors, alone or as its "state_dict" or "model"; it has '
            f'{shorten([str(key) for key in whole]) or "none"}: {hint}'
        )
    of_lightning = r'|model\.' if 'pytorch-lightning_version' in whole else ''
    return {re.sub(rf'^(module\.|_orig_mod\.{of_lightning})+', '', key): value for key, value in content.items()}


def _weight_entries(content: Any) -> list[str]:
    """The entries of a checkpoint that are state dicts, such as an average of the weights."""
    entries = content.items() if isinstance(content, dict) else ()
    return [
        str(key) for key, value in entries
        if isinstance(value, dict) and value and all(isinstance(v, Tensor) for v in value.values())
    ]  # fmt: skip


def describe_entries(content: Any) -> str:
    """Which of several weights in a file are read; '' if it has one state dict only."""
    entries = _weight_entries(content)
    read = next((name for name in WRAPPERS if name in entries), None)
    others = ', '.join(f'"{name}"' for name in entries if name != read)
    average = ', the moving average' if others == f'"{EMA}"' else ''
    return f'read from "{read}"{average}; the file also has {others}' if read and others else ''


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has been read, to hand on: reading takes seconds and unpickles hundreds of megabytes.

    Attributes:
        source: Its file or URL.
        content: What `read_checkpoint` returns.
    """

    source: str
    content: Any

    @classmethod
    def read(cls, checkpoint: str | Path) -> 'Checkpoint':
        """Reads a checkpoint, named as for `find_checkpoint`, with the errors of `read_checkpoint`."""
        source = find_checkpoint(checkpoint)
        return cls(source, read_checkpoint(source))

    @property
    def state_dict(self) -> StateDict:
        return state_dict_in(self.content, self.source)

    @property
    def is_detector(self) -> bool:
        """Whether it has a neck or heads besides a backbone. The one `head` of a classifier has this name."""
        keys = {key.partition('.')[0] for key in self.state_dict}
        return {'backbone'} <= keys - {'data_preprocessor'} != {'backbone'} and 'head' not in keys

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `meta` that mmengine and `tokennorm publish` write; {} without it."""
        return (self.content.get('meta') or {}) if isinstance(self.content, dict) else {}

    @property
    def dataset_meta(self) -> Mapping[str, Any]:
        """The `metainfo` of the dataset that it was trained on; {} if it has none."""
        of_mmdet_2 = dict(classes=self.meta['CLASSES']) if self.meta.get('CLASSES') else None
        meta = common_meta(self.meta.get('dataset_meta') or of_mmdet_2)
        return {key.lower(): value for key, value in meta.items()} if 'CLASSES' in meta else meta  # mmdet 3.0rc

    def __str__(self) -> str:
        """The file or URL with its epoch, its metric if it is the best of its run, and the config that it is of."""
        facts = [f'{key} {self.meta[key]}' for key in ('epoch', 'iter') if self.meta.get(key)][:1]
        selected = re.match(r'best_(.+)_(epoch|iter)_(\d+)$', Path(self.source).stem)
        if selected:  # mmengine notes the next iteration in it
            facts = [f'{selected[2]} {selected[3]}']
        hub = (self.content.get('message_hub') or {}) if selected else {}
        if selected and (score := (hub.get('runtime_info') or {}).get('best_score')) is not None:
            ap = f'{100 * float(score):.1f} of 100' if 'mAP' in selected[1] else f'{float(score):.3f}'
            facts.append(f'the best of its training run, {selected[1]} {ap}')
        if entries := describe_entries(self.content):
            facts.append(entries)
        if name := self.meta.get('experiment_name'):  # the config's name and the time
            facts.append(f'config {re.sub(r"_[0-9]{8}_[0-9]{6}(_[0-9]+)?$", "", str(name))}')
        return self.source + (f' ({", ".join(facts)})' if facts else '')


def common_meta(meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any]:
    """A dataset's `metainfo`; of concatenated datasets the first, if all have equal classes, else {}."""
    metas: Sequence[Mapping[str, Any]] = meta if isinstance(meta, list | tuple) else [meta or {}]  # type: ignore[list-item]
    classes = [list(each.get('classes') or ()) for each in metas]
    return metas[0] if metas and all(names == classes[0] for names in classes) else {}


def keep_mmengine_from_unpickling() -> None:
    """Makes mmengine read every checkpoint with `read_checkpoint`.

    Otherwise it falls back to unpickling files that `weights_only` refuses, and always unpickles URLs.
    """
    make_mmengine_read_with(_read_for_mmengine)


def _read_for_mmengine(checkpoint: Any, map_location: Any = None, **_: Any) -> Any:
    """Reads a checkpoint whose weights are its `state_dict`, without prefixes of wrappers.

    `meta.config` of older runners, a text that mmengine runs as Python on resuming, is left out.
    """
    content = read_checkpoint(checkpoint, map_location)
    with suppress(CheckpointError):
        weights = state_dict_in(content, checkpoint)
        if weights.keys() not in (content.keys(), content.get('state_dict', {}).keys()):
            is_whole = bool(content.keys() & set(WRAPPERS))
            content = dict(content if is_whole else {}, state_dict=weights)
    if isinstance(content, dict) and isinstance(content.get('meta'), dict):
        content['meta'].pop('config', None)
    return content
