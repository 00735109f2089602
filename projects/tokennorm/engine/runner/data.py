"""`--data`: points a config at a folder, and prints the folder's contents and the changes."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from mmengine.config import Config

from tokennorm.datasets.anchor_fit import anchor_fit
from tokennorm.datasets.coco.checks import innermost_datasets
from tokennorm.datasets.coco.folder import SPLITS, CocoSplit
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.coco.own_data import learns_masks, use_coco_splits
from tokennorm.datasets.finding import find_splits
from tokennorm.datasets.image_folder import find_image_folder, is_classifier, use_image_folder
from tokennorm.engine.distributed import is_first_process, print_once
from tokennorm.engine.image_size import IMAGE_SIZE, fitting_size, set_image_size
from tokennorm.messages import exit_on


def use_data_folder(
    cfg: Config, folder: str, needed: tuple[str, ...], image_size: int | None = None, fit_images: bool = True
) -> None:
    """Points a config at a folder: for a detector COCO, YOLO or Pascal VOC, for a classifier one folder per class.

    Args:
        cfg: The config, changed in place.
        folder: The folder.
        needed: Splits that it must have.
        image_size: Short side that a detector's images are resized to, in pixels.
        fit_images: Whether images that the config would enlarge more than twofold are resized to less, and the anchors
            compared with the objects.

    Raises:
        SystemExit: if the folder has another layout, or something in it would break training or evaluation.
    """
    with exit_on(ValueError, OSError):
        if is_classifier(cfg):
            changes = _point_classifier_at(cfg, folder, needed)
        else:
            splits, changes = _point_detector_at(cfg, folder, needed)
            if fit_images:
                changes += _fit_images(cfg, next(iter(splits.values())).content, image_size)
    print_once(*(f'--data: {change}' for change in changes))


def _point_detector_at(cfg: Config, folder: str, needed: tuple[str, ...]) -> tuple[Mapping[str, CocoSplit], list[str]]:
    """Sets a detector's data after an inspection, prints the findings, and returns the splits and the changes."""
    splits = find_splits(folder, needed)
    found = inspect_splits(splits, open_images=is_first_process())
    print_once(f'{folder}\n\n{found.text(learns_masks(cfg))}\n')
    if found.errors:
        raise ValueError(f'{folder} has errors, listed above; fix these problems and rerun')
    return splits, use_coco_splits(cfg, splits, found)


def _fit_images(cfg: Config, content: Mapping[str, Any], image_size: int | None) -> list[str]:
    changes = choose_image_size(cfg, content, image_size)
    fit = anchor_fit(cfg, content)
    return changes + ([] if fit is None else [fit.summary()])


def choose_image_size(cfg: Config, content: Mapping[str, Any], image_size: int | None) -> list[str]:
    """Sets the size of a detector's images, and notes it in the datasets' metainfo, which checkpoints keep.

    A size of None is the config's, or less where the images are small. Returns the changes, one line each.
    """
    if image_size is None and content['images']:
        image_size = fitting_size(cfg, median(min(i['width'], i['height']) for i in content['images']))
    if image_size is None:
        return []
    for name in SPLITS:
        for dataset in innermost_datasets((cfg.get(f'{name}_dataloader') or {}).get('dataset') or {}):
            dataset.setdefault('metainfo', {})[IMAGE_SIZE] = image_size
    return set_image_size(cfg, image_size)


def _point_classifier_at(cfg: Config, folder: str, needed: tuple[str, ...]) -> list[str]:
    """Sets a classifier's data, and returns a summary and the changes."""
    splits = find_image_folder(folder, needed)
    changes = use_image_folder(cfg, splits)
    found = []
    for name, split in splits.items():
        counts = split.counts.values()
        found.append(
            f'{name} is {split.folder}: {sum(counts)} images of {len(counts)} classes, '
            f'{min(counts)} to {max(counts)} per class'
        )
    return found + changes
