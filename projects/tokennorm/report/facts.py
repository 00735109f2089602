"""Facts about a run: versions, data, configuration."""

import hashlib
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config

from tokennorm.version import __version__

PACKAGES = ('torch', 'onedl-mmengine', 'onedl-mmcv', 'onedl-mmdetection', 'hotcoco', 'numpy')


@dataclass(frozen=True)
class DataFacts:
    """An annotation file in short.

    Args:
        path: The file, as an absolute path.
        fingerprint: First 12 hex digits of the SHA-256 of the file.
        images: Number of images.
        objects: Number of objects, without crowds.
        classes: Number of categories.
    """

    path: str
    fingerprint: str
    images: int
    objects: int
    classes: int

    @classmethod
    def of(cls, path: str | Path, content: dict[str, Any]) -> 'DataFacts':
        """Returns the facts of a COCO annotation file, from its path and its content."""
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]
        objects = sum(not a.get('iscrowd') for a in content.get('annotations', []))
        return cls(str(Path(path).resolve()), digest, len(content['images']), objects, len(content['categories']))


def versions() -> dict[str, str]:
    """Returns the versions of Python, of TokenNorm and of the packages it builds on, and the device."""
    found = {'Python': platform.python_version(), 'tokennorm': __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    found['device'] = torch.cuda.get_device_name() if torch.cuda.is_available() else f'CPU ({platform.machine()})'
    return found


def validates_by_epoch(cfg: Config | None) -> bool:
    """Returns whether validation scalars count epochs, as in an `EpochBasedTrainLoop`."""
    train_cfg = (cfg or {}).get('train_cfg') or {}
    kind = str(train_cfg.get('type', '')).rpartition('.')[2]
    return kind == 'EpochBasedTrainLoop' if kind else bool(train_cfg.get('by_epoch', True))
