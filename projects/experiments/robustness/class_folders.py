"""Images in one folder per class, for some or all classes of a trained classifier."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmpretrain.datasets import BaseDataset
from mmpretrain.datasets.categories import IMAGENET_CATEGORIES
from timm.data import ImageNetInfo
from torch import Tensor, nn

from tokennorm.base.messages import shorten
from tokennorm.config.tree import set_num_classes
from tokennorm.datasets.image_files import IMAGE_SUFFIXES
from tokennorm.datasets.image_folder import subfolders
from tokennorm.registry import DATASETS


@DATASETS.register_module()
class ClassFolders(BaseDataset):
    """Dataset of `data_root/CLASS/.../image`, with the labels of a trained classifier.

    Args:
        data_root: The folder.
        labels: Names of the folders to read, and their labels.
        classes: All the classes of the classifier.
        **kwargs: Those of mmpretrain's `BaseDataset`.
    """

    def __init__(self, data_root: str, labels: dict[str, int], classes: Sequence[str], **kwargs: Any) -> None:
        self.labels = labels
        super().__init__(ann_file='', data_root=data_root, classes=tuple(classes), **kwargs)

    def load_data_list(self) -> list[dict[str, Any]]:
        """Returns path and label of each image. mmengine calls it."""
        images = [
            dict(img_path=str(path), gt_label=label)
            for name, label in self.labels.items()
            for path in sorted(Path(self.data_root, name).rglob('*'))
            if path.suffix.lower() in IMAGE_SUFFIXES
        ]
        if not images:
            raise ValueError(f'{self.data_root} has no images ({", ".join(IMAGE_SUFFIXES)}) in its folders')
        return images


def class_names(path: Path) -> list[str]:
    """Returns the names of a folder's folders, or the lines of a file."""
    if path.is_dir():
        names = subfolders(path)
    elif path.is_file():
        names = [line.strip() for line in path.read_text(encoding='utf-8').splitlines() if line.strip()]
    else:
        raise ValueError(f'{path} not found; it must be a folder with a folder per class, or a file with their names')
    if not names:
        raise ValueError(f'{path} has no {"folders" if path.is_dir() else "lines"}, one per class')
    return names


def class_labels(names: Sequence[str], classes: Sequence[str], source: str) -> dict[str, int]:
    """Returns the label of each name: its place in `classes`.

    ImageNet's 1000 classes may also be named by their WordNet ids (n01440764, ...).
    """
    known = [list(classes)]
    if list(classes) == list(IMAGENET_CATEGORIES):
        known.append(ImageNetInfo('imagenet-1k').label_names())
    most = max(known, key=lambda candidates: len(set(names) & set(candidates)))
    absent = [name for name in names if name not in most]
    if absent:
        raise ValueError(
            f'{source}: {shorten(absent, 5)} not among the {len(classes)} classes of the checkpoint: '
            f'{", ".join(most[:5])}{", ..." if len(most) > 5 else ""}'
        )
    twice = [name for name in names if most.count(name) > 1]
    if twice:
        raise ValueError(f'{source}: {", ".join(twice)} is the name of several classes of the checkpoint')
    return {name: most.index(name) for name in names}


def use_trained_classes(
    cfg: Config, trained: Sequence[str] | None, data: Path | None, subset: Path | None
) -> list[int] | None:
    """Sets a classifier's classes to a checkpoint's, and its data to a folder with one folder per class.

    Args:
        cfg: The config, changed in place.
        trained: The classes of the checkpoint; None if it has no names: ImageNet's, if the config has 1000.
        data: The folder of DIR/CLASS/image. DIR/test or DIR/val take precedence over DIR. None keeps the data of the
            config.
        subset: A folder or a file with class names. Images of other classes are left out, and the classifier cannot
            answer with them.

    Returns:
        The labels of the subset, or None.
    """
    cfg['test_evaluator'] = dict(type='mmpretrain.Accuracy', topk=(1,))
    if trained is None and cfg['model']['head']['num_classes'] == len(IMAGENET_CATEGORIES):
        trained = IMAGENET_CATEGORIES
    if trained is None:
        if data is not None or subset is not None:
            raise ValueError("the checkpoint has no class names, and its classes are not ImageNet's 1000")
        return None
    set_num_classes(cfg['model'], len(trained))
    if data is not None:
        folder = next((data / name for name in ('test', 'val') if (data / name).is_dir()), data)
        cfg['test_dataloader']['dataset'] = dict(
            type='tokennorm.ClassFolders',
            data_root=str(folder),
            labels=class_labels(class_names(folder), trained, f'--data {folder}'),
            classes=list(trained),
            pipeline=cfg['test_dataloader']['dataset']['pipeline'],
        )
    if subset is None:
        return None
    return sorted(class_labels(class_names(subset), trained, f'--classes {subset}').values())


def restrict_answers(head: nn.Module, labels: Sequence[int]) -> None:
    """Restricts a classification head to these labels: the logits of all others become minus infinity."""
    allowed = torch.tensor(sorted(labels))

    def leave_out_others(module: nn.Module, inputs: tuple, logits: Tensor) -> Tensor:
        restricted = torch.full_like(logits, -torch.inf)
        restricted[:, allowed] = logits[:, allowed]
        return restricted

    head.register_forward_hook(leave_out_others)
