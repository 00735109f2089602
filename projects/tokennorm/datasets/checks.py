"""Compares a detector's config with its annotation files before training or testing begins."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from mmdet.datasets import CocoDataset

from tokennorm.datasets.coco_folder import CocoSplit, read_coco_file
from tokennorm.datasets.inspection import inspect_annotations


def check_config_data(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> None:
    """Checks the COCO annotation files that a config names.

    Args:
        cfg: A whole config, with `model` and `<split>_dataloader`.
        splits: Which of 'train', 'val' and 'test' to check.

    Raises:
        FileNotFoundError: where an annotation file is not there.
        ValueError: where one is no COCO file, lacks a class of the config or has them in another order, has entries
            that cannot be trained on or evaluated, or a head has another number of classes.
    """
    for split in splits:
        loader = cfg.get(f'{split}_dataloader')
        if loader is None:
            continue
        for dataset in innermost_datasets(loader['dataset']):
            if 'ann_file' not in dataset:
                root = Path(dataset.get('data_root') or '.')
                if not root.is_dir():
                    raise FileNotFoundError(f'{split}_dataloader: the folder {root} is not there; put the data there')
                continue
            check_annotations(dataset, split)
            if (classes := _classes(dataset)) is not None:
                check_num_classes(cfg['model'], len(classes), f'{split}_dataloader')


def check_annotations(dataset: Mapping[str, Any], split: str) -> None:
    """The annotation file of one dataset: there, readable, with every class of `metainfo.classes`, and, where mmdet's
    `CocoDataset` reads it, with these in the same order, and with entries that training and evaluation can use. Errors
    name the file. Of files that are not json, such as VOC's lists, no more is asked than that they are there.
    """
    role = f'{split}_dataloader'
    path = Path(dataset.get('data_root') or '', dataset['ann_file'])
    is_json = path.suffix == '.json' or _is_coco(dataset)
    if not path.is_file():
        hint = 'set data_root' + (', or name your folder with --data' if is_json else ', or put the data there')
        if 'shapes' in path.parts:
            hint = 'make it with `python tools/make_dataset.py`'
        raise FileNotFoundError(f'{role}: the annotation file {path} is not there; {hint}')
    if not is_json:
        return
    classes = _classes(dataset)
    try:
        content = read_coco_file(path, with_annotations=split != 'test')
        names = [category['name'] for category in content['categories']]
    except (ValueError, KeyError, RecursionError) as error:
        raise ValueError(f'{role}: {path} is not a COCO annotation file ({type(error).__name__}: {error})') from error
    absent = [name for name in classes or () if name not in names]
    if absent:
        raise ValueError(
            f'{role}: metainfo.classes has {", ".join(absent)}, but the categories in {path} are '
            f'{", ".join(map(str, names))}'
        )
    if not _is_coco(dataset):
        return
    in_file = [name for name in names if name in (classes or names)]
    if classes is not None and in_file != list(classes):
        raise ValueError(
            f'{role}: mmdet numbers classes in the order of the categories in {path}, {", ".join(map(str, in_file))}, '
            f'but metainfo.classes has {", ".join(classes)}: give both the same order'
        )
    if 'annotations' not in content:
        return
    found = inspect_annotations(CocoSplit(split, path, path.parent, content))
    errors = found.errors + (found.mask_errors if _reads_masks(dataset.get('pipeline') or []) else [])
    if errors:
        raise ValueError(f'{role}: {path}: {"; ".join(errors)}')
    if split == 'train' and not _images_left(content, classes, dataset.get('filter_cfg') or {}):
        raise ValueError(
            f'{role}: {path}: no image is left by classes={classes} and filter_cfg={dataset["filter_cfg"]}'
        )


def _is_coco(dataset: Mapping[str, Any]) -> bool:
    return str(dataset['type']).rpartition('.')[2] == 'CocoDataset'


def _classes(dataset: Mapping[str, Any]) -> Sequence[str] | None:
    """Those of the config, or mmdet's for its `CocoDataset`; None where the dataset has its own way to know."""
    default = CocoDataset.METAINFO['classes'] if _is_coco(dataset) else None
    return (dataset.get('metainfo') or {}).get('classes', default)


def _reads_masks(pipeline: Iterable[Mapping[str, Any]]) -> bool:
    return any(step.get('with_mask') for step in pipeline)


def _images_left(content: Mapping[str, Any], classes: Iterable[str], filter_cfg: Mapping[str, Any]) -> int:
    """Images that mmdet's `filter_cfg` leaves."""
    ids = {category['id'] for category in content['categories'] if category['name'] in set(classes)}
    with_objects = {a['image_id'] for a in content['annotations'] if a['category_id'] in ids}
    return sum(
        min(image['width'], image['height']) >= filter_cfg.get('min_size', 0)
        and (image['id'] in with_objects or not filter_cfg.get('filter_empty_gt'))
        for image in content['images']
    )


def check_num_classes(model: Any, num_classes: int, role: str) -> None:
    """Every `num_classes` in the heads of a model's config is that of the dataset.

    Heads that count something else are left alone: those of semantic segmentation, and of models that read class names.
    """
    for name, head in _heads(model, 'model'):
        if head['num_classes'] != num_classes:
            raise ValueError(
                f'{name}.num_classes={head["num_classes"]}, but metainfo.classes of {role} has {num_classes}: '
                f'set it to {num_classes}'
            )


def check_classes(trained: Sequence[str], classes: Sequence[str], checkpoint: str) -> None:
    """The classes of the data are those that a checkpoint was trained with, in the same order.

    Raises:
        ValueError: where they are not; a detector would be scored on the wrong classes.
    """
    if list(trained) == list(classes):
        return
    reason = 'in another order' if sorted(trained) == sorted(classes) else 'not the same'
    raise ValueError(
        f'the classes of {checkpoint} and of the data are {reason}: {len(trained)} ({", ".join(trained)}) '
        f'and {len(classes)} ({", ".join(classes)}). Give the data that it was trained for, with --data or the config '
        'in its work folder, and its categories in that order'
    )


def set_num_classes(model: Any, num_classes: int) -> None:
    """Gives every head that `check_num_classes` looks at the number of classes of the dataset, in place."""
    for _, head in _heads(model, 'model'):
        head['num_classes'] = num_classes


def innermost_datasets(dataset: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The datasets inside wrappers such as RepeatDataset ('dataset') and ConcatDataset ('datasets')."""
    if 'dataset' in dataset:
        yield from innermost_datasets(dataset['dataset'])
    elif 'datasets' in dataset:
        for inner in dataset['datasets']:
            yield from innermost_datasets(inner)
    else:
        yield dataset


def _heads(node: Any, name: str) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Parts of a model's config with a `num_classes` of its own, and their names."""
    if isinstance(node, Mapping) and 'language_model' not in node:
        if isinstance(node.get('num_classes'), int) and 'semantic' not in name:
            yield name, node
        for key, value in node.items():
            yield from _heads(value, f'{name}.{key}')
    elif isinstance(node, list | tuple):
        for i, value in enumerate(node):
            yield from _heads(value, f'{name}[{i}]')
