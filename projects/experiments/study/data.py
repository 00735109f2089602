"""Data of a study: generated datasets, and parts of datasets that the user has downloaded."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tokennorm.datasets import make_shape_classes_dataset, make_shapes_dataset
from tokennorm.datasets.image_folder import subfolders
from tokennorm.messages import shorten

_SPLITS = ('train', 'val')


def take_classes(folder: str | Path, source: str | Path, classes: Sequence[str]) -> None:
    """Makes an image folder of some classes of another one, by symbolic links.

    Args:
        folder: The new folder, `folder/train/CLASS` and `folder/val/CLASS`. An existing one is checked and kept.
        source: The image folder to take them from, with `train/CLASS/*` and `val/CLASS/*`.
        classes: Names of the classes to take.
    """
    folder, source = Path(folder), Path(source)
    for split in _SPLITS:
        lacking = [name for name in classes if not (source / split / name).is_dir()]
        if lacking:
            raise FileNotFoundError(
                f'{source / split} lacks {len(lacking)} of {len(classes)} classes ({shorten(lacking)}): put each class '
                f'into {source}/{split}/CLASS, or name the folder that holds {source.name} with --data-from'
            )
    for split in _SPLITS:
        (folder / split).mkdir(parents=True, exist_ok=True)
        for name in classes:
            with suppress(FileExistsError):
                (folder / split / name).symlink_to((source / split / name).resolve(), target_is_directory=True)
            if not (folder / split / name).is_dir():
                raise ValueError(f'{folder / split / name} links to a folder that does not exist; remove {folder}')
        more = sorted(set(subfolders(folder / split)) - set(classes))
        if more:
            raise ValueError(f'{folder / split} also has other classes ({shorten(more)}); remove that folder')


def take_coco(folder: str | Path, source: str | Path) -> None:
    """Links a dataset in COCO format, `source/images` and `source/annotations/{train,val}.json`, to another place."""
    folder, source = Path(folder), Path(source)
    for part in ('images', 'annotations/train.json', 'annotations/val.json'):
        if not (source / part).exists():
            raise FileNotFoundError(
                f'{source / part} was not found: put the dataset into {source}, or name the folder that holds it with '
                '--data-from'
            )
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(source.resolve(), target_is_directory=True)
    elif folder.resolve() != source.resolve():
        raise ValueError(f'{folder} exists and is not {source}; remove it, or name its folder with --data-from')


MAKERS: dict[str, Callable[..., Any]] = dict(
    shapes=make_shapes_dataset, shape_classes=make_shape_classes_dataset, classes=take_classes, coco=take_coco
)


def prepare_data(data: Mapping[str, Mapping[str, Any]], data_from: str | Path = 'data') -> None:
    """Prepares all datasets of a study.

    Args:
        data: folder -> dict(maker=..., and its arguments). A `source` is relative to `data_from`.
        data_from: The folder that holds the downloaded datasets.
    """
    for folder, settings in data.items():
        arguments = dict(settings)
        make = MAKERS[arguments.pop('maker')]
        if 'source' in arguments:
            arguments['source'] = Path(data_from) / arguments['source']
        make(folder, **arguments)
