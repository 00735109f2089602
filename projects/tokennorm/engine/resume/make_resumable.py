"""Where a training goes on: the latest checkpoint in a work folder that is whole, and what a config needs for it."""

import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

from mmengine.config import Config
from mmengine.hooks import CheckpointHook

from tokennorm.checkpoints import CheckpointError
from tokennorm.checkpoints.reading import NOTE, noted_checkpoint, read_checkpoint


def make_resumable(cfg: Config) -> None:
    """Has a config's training leave checkpoints that survive a kill and hold all that it goes on from.

    Args:
        cfg: A whole config with a training; its checkpoint hook and batch sampler are changed, where they are
            mmengine's or mmdet's.
    """
    hooks = cfg.setdefault('default_hooks', {})
    hook = hooks.setdefault('checkpoint', dict(type='CheckpointHook', interval=1))
    if hook is not None and _is_host_hook(hook.get('type')):
        hook['type'] = 'tokennorm.CheckpointHook'
    loader = cfg.get('train_dataloader')
    if loader is None:  # mmengine's runner says what is missing
        return
    inner = loader.get('batch_sampler')
    batched = loader.get('batch_size') is not None
    if batched and (inner is None or inner['type'] != 'tokennorm.ResumableBatchSampler'):
        loader['batch_sampler'] = dict(type='tokennorm.ResumableBatchSampler', batch_sampler=inner)
        if 'drop_last' in loader:
            loader['batch_sampler']['drop_last'] = loader.pop('drop_last')


def _is_host_hook(kind: object) -> bool:
    """By name, with mmengine's scope or without; configs in pure Python have the class."""
    return kind in ('CheckpointHook', 'mmengine.CheckpointHook', CheckpointHook)


def latest_checkpoint(work_dir: str | Path) -> Path | None:
    """The latest checkpoint that a training can go on from; a warning names those that are damaged.

    Returns:
        None where there is none.

    Raises:
        CheckpointError: where there are some and all are damaged.
    """
    damaged = []
    for path in _candidates(Path(work_dir)):
        try:
            content = _read_whole(path)
        except CheckpointError as error:
            damaged.append(error)
            warnings.warn(f'--resume skips a checkpoint for the one before: {error}', stacklevel=2)
            continue
        if isinstance(content, dict) and 'optimizer' in content:
            return path
    if damaged:
        raise CheckpointError(f'--resume: no checkpoint in {work_dir} can be gone on from. The latest: {damaged[0]}')
    return None


def _candidates(folder: Path) -> Iterator[Path]:
    """Checkpoints, the latest first: what was written after `last_checkpoint`, what this one names, and the others."""
    paths = [path for path in folder.glob('*.pth') if path.is_file() and not path.name.startswith('best_')]
    paths.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    named = noted_checkpoint(folder)
    if named is not None:
        written = (folder / NOTE).stat().st_mtime_ns
        after = [path for path in paths if path.stat().st_mtime_ns > written]
        if named.is_file():
            yield from after
            yield named
            paths = [path for path in paths if path not in after and not path.samefile(named)]
        elif named.name:
            warnings.warn(f'--resume: {folder / NOTE} names {named}, which is not there', stacklevel=3)
    yield from paths


def _read_whole(path: Path) -> object:
    """What is in a checkpoint, after a comparison of every byte with the checksums in it."""
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
    except zipfile.BadZipFile:
        raise CheckpointError(f'{path} is cut off, or no checkpoint of torch.save') from None
    if damaged is not None:
        raise CheckpointError(f'{path} is damaged: {damaged} has another checksum')
    return read_checkpoint(path)
