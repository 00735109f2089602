"""What `--data` does: points a config at a folder, and prints what is in it and what changes."""

from mmengine.config import Config

from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.coco.own_data import use_coco_splits
from tokennorm.datasets.finding import find_splits
from tokennorm.datasets.image_folder import find_image_folder, is_classifier, use_image_folder
from tokennorm.engine.distributed import is_first_process


def use_data_folder(cfg: Config, folder: str, needed: tuple[str, ...]) -> None:
    """Points a config at a folder: for a detector COCO, YOLO or Pascal VOC, for a classifier one folder per class.

    Args:
        cfg: The config, changed in place.
        folder: The folder.
        needed: Splits that it must have.

    Raises:
        SystemExit: where the folder is not laid out so, or something in it would break training or evaluation.
    """
    point = _point_classifier_at if is_classifier(cfg) else _point_detector_at
    try:
        changes = point(cfg, folder, needed)
    except (ValueError, OSError) as error:
        raise SystemExit(f'error: {error}') from None
    if is_first_process():
        for change in changes:
            print(f'--data: {change}', flush=True)


def _point_detector_at(cfg: Config, folder: str, needed: tuple[str, ...]) -> list[str]:
    """Sets a detector's data after an inspection, whose findings are printed, and returns what was changed."""
    splits = find_splits(folder, needed)
    found = inspect_splits(splits, open_images=is_first_process())
    if is_first_process():
        print(f'{folder}\n\n{found}\n', flush=True)
    if found.errors:
        raise ValueError(f'{folder} has errors, listed above; fix these problems and rerun')
    return use_coco_splits(cfg, splits, found)


def _point_classifier_at(cfg: Config, folder: str, needed: tuple[str, ...]) -> list[str]:
    """Sets a classifier's data, and returns what is there and what was changed."""
    splits = find_image_folder(folder, needed)
    changes = use_image_folder(cfg, splits)
    found = []
    for name, split in splits.items():
        counts = split.counts.values()
        found.append(
            f'{name} is {split.folder}: {sum(counts)} images of {len(counts)} classes, '
            f'{min(counts)} to {max(counts)} of each'
        )
    return found + changes
