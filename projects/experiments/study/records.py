"""Record of a run of a study, `record.json` in its work directory: its conditions, its curve and its times."""

import hashlib
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config

from tokennorm.files import write_atomically
from tokennorm.version import __version__

NAME = 'record.json'
_PACKAGES = ('torch', 'onedl-mmengine', 'onedl-mmcv', 'onedl-mmdetection', 'onedl-mmpretrain', 'numpy')


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a run; None if the run has not started."""
    path = folder / NAME
    return json.loads(path.read_text(encoding='utf-8')) if path.is_file() else None


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Replaces a record atomically: a killed process leaves the old one or the new one."""
    write_atomically(folder / NAME, f'{json.dumps(record, indent=1)}\n'.encode())


def is_finished(folder: Path) -> bool:
    """Returns whether a run has all its epochs, its last validation and its weights."""
    record = read_record(folder)
    return record is not None and record['finished']


def fingerprint(cfg: Config, drop: tuple[str, ...] = ('work_dir', 'custom_imports')) -> str:
    """A hash of what determines the result of a run: its config without paths and without names of modules."""
    content = cfg.to_dict()
    for key in drop:
        content.pop(key, None)
    init_cfg = content['model']['backbone'].pop('init_cfg', None)
    content['starts_from'] = Path(init_cfg['checkpoint']).name if init_cfg else None
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def has_config(record: dict[str, Any], cfg: Config) -> bool:
    """Returns whether a record is of a run of this config, also if it was written with names of modules hashed."""
    return record['fingerprint'] in (fingerprint(cfg), fingerprint(cfg, drop=('work_dir',)))


def new_record(cfg: Config, stage: str, arm: str, seed: int) -> dict[str, Any]:
    """The record of a run that starts now."""
    return dict(
        stage=stage,
        arm=arm,
        seed=seed,
        finished=False,
        fingerprint=fingerprint(cfg),
        epochs=cfg.train_cfg.max_epochs,
        batch_size=cfg.train_dataloader.batch_size,
        optimizer={key: value for key, value in cfg.optim_wrapper.optimizer.items() if key != 'fused'},
        curve={},
        seconds=0.0,
        cpu_seconds=0.0,
        pieces=0,
        machines=[],
        versions=dict(python=platform.python_version(), tokennorm=__version__, **_versions()),
        command=' '.join(['python', *sys.argv]),
    )


def machine() -> str:
    """The processor that this process trains on, and how many threads it has."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f'{_cpu_name()}, {os.cpu_count()} cores, {torch.get_num_threads()} thread(s) a run'


def _cpu_name() -> str:
    path = Path('/proc/cpuinfo')
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return names[0] if names else platform.machine()


def _versions() -> dict[str, str]:
    return {name: version(name) for name in _PACKAGES}
