"""Facts about a run: versions, data, configuration."""

import hashlib
import platform
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config

from tokennorm.environment import version_of
from tokennorm.version import __version__

PACKAGES = ('torch', 'onedl-mmengine', 'onedl-mmcv', 'onedl-mmdetection', 'hotcoco', 'numpy')


def data_facts(path: str | Path, content: dict[str, Any]) -> dict[str, Any]:
    """Returns path, hash and counts of a COCO annotation file; crowds are not counted."""
    return dict(
        path=str(Path(path).resolve()),
        fingerprint=hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12],
        images=len(content['images']),
        objects=sum(not a.get('iscrowd') for a in content.get('annotations', [])),
        classes=len(content['categories']),
    )


def versions() -> dict[str, str]:
    """Returns the versions of Python, of TokenNorm and of the packages it builds on, and the device."""
    found = {'Python': platform.python_version(), 'tokennorm': __version__}
    found |= {package: version for package in PACKAGES if (version := version_of(package))}
    found['device'] = torch.cuda.get_device_name() if torch.cuda.is_available() else f'CPU ({platform.machine()})'
    return found


def validates_by_epoch(cfg: Config | None) -> bool:
    """Returns whether validation scalars count epochs, as in an `EpochBasedTrainLoop`."""
    train_cfg = (cfg or {}).get('train_cfg') or {}
    kind = str(train_cfg.get('type', '')).rpartition('.')[2]
    return kind == 'EpochBasedTrainLoop' if kind else bool(train_cfg.get('by_epoch', True))
