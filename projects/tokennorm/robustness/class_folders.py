"""Images in a folder per class, whose classes are some of those that a classifier was trained with, or all."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mmpretrain.datasets import BaseDataset
from mmpretrain.datasets.categories import IMAGENET_CATEGORIES
from timm.data import ImageNetInfo
from torch import Tensor, nn

from tokennorm.registry import DATASETS

_SUFFIXES = ('.jpg', '.jpeg', '.png', '.ppm', '.bmp', '.pgm', '.tif')  # those that mmpretrain trains on


@DATASETS.register_module()
class ClassFolders(BaseDataset):
    """`data_root/CLASS/.../image` with the label that each class has in a trained classifier.

    Args:
        data_root: The folder.
        labels: Names of the folders to take, and their labels.
        classes: All the classes of the classifier.
        **kwargs: Those of mmpretrain's `BaseDataset`.
    """

    def __init__(self, data_root: str, labels: dict[str, int], classes: Sequence[str], **kwargs: Any) -> None:
        self.labels = labels
        super().__init__(ann_file='', data_root=data_root, classes=tuple(classes), **kwargs)

    def load_data_list(self) -> list[dict[str, Any]]:
        images = [
            dict(img_path=str(path), gt_label=label)
            for name, label in self.labels.items()
            for path in sorted(Path(self.data_root, name).rglob('*'))
            if path.suffix.lower() in _SUFFIXES
        ]
        if not images:
            raise ValueError(f'{self.data_root} has no images ({", ".join(_SUFFIXES)}) in its folders')
        return images


def class_names(path: Path) -> list[str]:
    """The names of a folder's folders, or the lines of a file.

    Raises:
        ValueError: where there are none.
    """
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith('.'))
    elif path.is_file():
        names = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    else:
        raise ValueError(
            f'{path} is not there; it must be a folder with a folder per class, or a file with their names'
        )
    if not names:
        raise ValueError(f'{path} has no {"folders" if path.is_dir() else "lines"}, one per class')
    return names


def class_labels(names: Sequence[str], classes: Sequence[str], source: str) -> dict[str, int]:
    """The label of each name: its place in `classes`; ImageNet's 1000 go by their WordNet ids too (n01440764, ...).

    Raises:
        ValueError: where `classes` lacks a name of `source`, or has it twice.
    """
    known = [list(classes)]
    if list(classes) == list(IMAGENET_CATEGORIES):
        known.append(ImageNetInfo('imagenet-1k').label_names())
    most = max(known, key=lambda candidates: len(set(names) & set(candidates)))
    absent = [name for name in names if name not in most]
    if absent:
        raise ValueError(
            f'{source}: {", ".join(absent[:5])}{f" and {len(absent) - 5} more" if len(absent) > 5 else ""} not among '
            f'the {len(classes)} classes of the checkpoint: {", ".join(most[:5])}{", ..." if len(most) > 5 else ""}'
        )
    twice = [name for name in names if most.count(name) > 1]
    if twice:
        raise ValueError(f'{source}: {", ".join(twice)} stands for several classes of the checkpoint')
    return {name: most.index(name) for name in names}


def restrict_answers(head: nn.Module, labels: Sequence[int]) -> None:
    """Lets a classification head answer with these labels only: the logits of all others become minus infinity."""
    allowed = torch.tensor(sorted(labels))

    def leave_out_others(module: nn.Module, inputs: tuple, logits: Tensor) -> Tensor:
        restricted = torch.full_like(logits, -torch.inf)
        restricted[:, allowed] = logits[:, allowed]
        return restricted

    head.register_forward_hook(leave_out_others)
