"""The config entries that exact resumption needs, and the latest undamaged checkpoint of a work directory."""

import warnings
import zipfile
from pathlib import Path

from mmengine.config import Config
from mmengine.hooks import CheckpointHook

from tokennorm.checkpoints import CheckpointError
from tokennorm.checkpoints.reading import read_checkpoint
from tokennorm.checkpoints.work_dir import checkpoints_in


def make_resumable(cfg: Config) -> None:
    """Sets the checkpoint hook and the batch sampler that exact resumption needs.

    Args:
        cfg: A whole config for training. A checkpoint hook of another package than mmengine stays.
    """
    hooks = cfg.setdefault('default_hooks', {})
    hook = hooks.setdefault('checkpoint', dict(type='CheckpointHook', interval=1))
    if hook is not None and hook.get('type') in ('CheckpointHook', 'mmengine.CheckpointHook', CheckpointHook):
        hook['type'] = 'tokennorm.CheckpointHook'
    loader = cfg.get('train_dataloader')
    if loader is None:  # mmengine's runner reports it
        return
    inner = loader.get('batch_sampler')
    batched = loader.get('batch_size') is not None
    if batched and (inner is None or inner['type'] != 'tokennorm.ResumableBatchSampler'):
        loader['batch_sampler'] = dict(type='tokennorm.ResumableBatchSampler', batch_sampler=inner)
        if 'drop_last' in loader:
            loader['batch_sampler']['drop_last'] = loader.pop('drop_last')


def latest_checkpoint(work_dir: str | Path) -> Path | None:
    """Returns the latest checkpoint that training can resume from, or None. A warning names damaged ones.

    Raises:
        CheckpointError: if all checkpoints are damaged.
    """
    damaged = []
    for path in checkpoints_in(Path(work_dir)):
        try:
            content = _read_whole(path)
        except CheckpointError as error:
            damaged.append(error)
            warnings.warn(f'--resume uses an earlier checkpoint: {error}', stacklevel=2)
            continue
        if isinstance(content, dict) and 'optimizer' in content:
            return path
    if damaged:
        raise CheckpointError(f'--resume: no usable checkpoint in {work_dir}. The latest: {damaged[0]}')
    return None


def _read_whole(path: Path) -> object:
    """Reads a checkpoint after comparing every byte with its checksums."""
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
    except zipfile.BadZipFile:
        raise CheckpointError(f'{path} is truncated, or was not written by torch.save') from None
    if damaged is not None:
        raise CheckpointError(f'{path} is damaged: the checksum of {damaged} differs')
    return read_checkpoint(path)
