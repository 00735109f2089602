"""Compares a detector's config with its annotation files before training or testing begins."""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from mmdet.datasets import CocoDataset
from mmdet.registry import DATASETS
from mmengine.fileio import list_from_file

from tokennorm.datasets.coco.folder import CocoSplit, read_coco_file
from tokennorm.datasets.coco.inspection import inspect_annotations
from tokennorm.registry import type_name


def check_config_data(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> None:
    """Checks the COCO annotation files that a config names.

    Raises:
        FileNotFoundError: if an annotation file is not found.
        ValueError: if a file is not a COCO file, lacks a class of the config or has another order of classes, has
            entries that cannot be used, or if a head has another number of classes.
    """
    for split in splits:
        loader = cfg.get(f'{split}_dataloader')
        if loader is None:
            continue
        for dataset in innermost_datasets(loader['dataset']):
            if not dataset.get('ann_file'):
                root = Path(dataset.get('data_root') or '.')
                if not root.is_dir() and not _is_elsewhere(dataset):
                    raise FileNotFoundError(f'{split}_dataloader: folder {root} not found; put the data there')
                continue
            check_annotations(dataset, split)
            if (classes := _classes(dataset)) is not None:
                things = (dataset.get('metainfo') or {}).get('thing_classes')  # of a panoptic dataset: what heads count
                check_num_classes(cfg['model'], len(things or classes), f'{split}_dataloader')


def check_annotations(dataset: Mapping[str, Any], split: str) -> None:
    """Checks the annotation file of one dataset. Errors name the file.

    - It must exist, unless mmengine fetches it from elsewhere.
    - A subclass of `CocoDataset` needs a COCO file with every class of `metainfo.classes`.
    - `CocoDataset` itself also needs these classes in the same order, and valid entries. Entries are not checked for
      images that are trained on without their annotations.
    """
    role = f'{split}_dataloader'
    path = Path(dataset.get('data_root') or '', dataset['ann_file'])
    kind = _class_of(dataset)
    has_coco_format = kind is not None and issubclass(kind, CocoDataset)
    pipeline = dataset.get('pipeline') or []
    is_labelled = split != 'test' and not any(type_name(step) == 'LoadEmptyAnnotations' for step in pipeline)
    if not path.is_file():
        if _is_elsewhere(dataset):
            return
        hint = 'set data_root' + (', or name your folder with --data' if has_coco_format else ', or put the data there')
        if 'shapes' in path.parts:
            hint = 'make it with `python tools/make_dataset.py`'
        raise FileNotFoundError(f'{role}: annotation file {path} not found; {hint}')
    if not has_coco_format:
        return
    classes = _classes(dataset)
    try:
        content = read_coco_file(path, with_annotations=is_labelled)
        names = [category['name'] for category in content['categories']]
    except (ValueError, KeyError, RecursionError) as error:
        raise ValueError(f'{role}: {path} is not a COCO annotation file ({type(error).__name__}: {error})') from error
    absent = [name for name in classes or () if name not in names]
    if absent:
        raise ValueError(
            f'{role}: metainfo.classes has {", ".join(absent)}, but the categories in {path} are '
            f'{", ".join(map(str, names))}'
        )
    if kind is not CocoDataset:
        return
    in_file = [name for name in names if name in (classes or names)]
    if classes is not None and in_file != list(classes):
        raise ValueError(
            f'{role}: mmdet numbers classes in the order of the categories in {path}, {", ".join(map(str, in_file))}, '
            f'but metainfo.classes has {", ".join(classes)}: give both the same order'
        )
    if 'annotations' not in content or not (is_labelled or split == 'test'):
        return
    found = inspect_annotations(CocoSplit(split, path, path.parent, content))
    reads_masks = any(step.get('with_mask') for step in pipeline)
    errors = found.errors + (found.mask_errors if reads_masks else [])
    if errors:
        raise ValueError(f'{role}: {path}: {"; ".join(errors)}')
    if split == 'train' and not _images_left(content, classes, dataset.get('filter_cfg') or {}):
        raise ValueError(
            f'{role}: {path}: no image remains after classes={classes} and filter_cfg={dataset["filter_cfg"]}'
        )


def _is_elsewhere(dataset: Mapping[str, Any]) -> bool:
    """Returns whether the files are at a URL or in one of mmengine's file backends."""
    places = (dataset.get('data_root'), dataset.get('ann_file'))
    return bool(dataset.get('backend_args')) or any('://' in str(place) for place in places)


def _class_of(dataset: Mapping[str, Any]) -> type | None:
    """The class that a dataset's `type` names, with or without a scope; None if mmdet's registry does not have it."""
    return DATASETS.module_dict.get(type_name(dataset))


def _classes(dataset: Mapping[str, Any]) -> Sequence[str] | None:
    """The classes of a dataset's config, or mmdet's default for `CocoDataset`; None for other datasets without any.

    The config may name a file with one class per line.
    """
    default = CocoDataset.METAINFO['classes'] if _class_of(dataset) is CocoDataset else None
    classes = (dataset.get('metainfo') or {}).get('classes', default)
    if not isinstance(classes, str):
        return classes
    if not Path(classes).is_file():
        raise ValueError(f'metainfo.classes={classes!r} is neither a file nor a tuple of names, such as ({classes!r},)')
    return list_from_file(classes)


def _images_left(content: Mapping[str, Any], classes: Iterable[str], filter_cfg: Mapping[str, Any]) -> int:
    """The number of images that remain after mmdet's `filter_cfg`."""
    ids = {category['id'] for category in content['categories'] if category['name'] in set(classes)}
    with_objects = {a['image_id'] for a in content['annotations'] if a['category_id'] in ids}
    return sum(
        min(image['width'], image['height']) >= filter_cfg.get('min_size', 0)
        and (image['id'] in with_objects or not filter_cfg.get('filter_empty_gt'))
        for image in content['images']
    )


def check_num_classes(model: Any, num_classes: int, role: str) -> None:
    """Checks that every `num_classes` in the heads of a model's config equals the dataset's.

    Not checked are heads that count something else: of proposals, of semantic segmentation, and of models that read
    class names.
    """
    for name, head in _heads(model, 'model'):
        if head['num_classes'] != num_classes:
            raise ValueError(
                f'{name}.num_classes={head["num_classes"]}, but metainfo.classes of {role} has {num_classes}: '
                f'set it to {num_classes}'
            )


def check_classes(trained: Sequence[str], classes: Sequence[str], checkpoint: str) -> None:
    """Checks that the data has the classes that a checkpoint was trained with, in the same order."""
    if list(trained) == list(classes):
        return
    reason = 'in another order' if sorted(trained) == sorted(classes) else 'not the same'
    raise ValueError(
        f'the classes of {checkpoint} and of the data are {reason}: {len(trained)} ({", ".join(trained)}) '
        f'and {len(classes)} ({", ".join(classes)}). Use the data that it was trained for, with --data or the config '
        'in its work directory, with its categories in that order'
    )


def set_num_classes(model: Any, num_classes: int) -> None:
    """Sets the number of classes of every head that `check_num_classes` checks, in place."""
    for _, head in _heads(model, 'model'):
        head['num_classes'] = num_classes


def innermost_datasets(dataset: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the datasets inside wrappers such as RepeatDataset ('dataset') and ConcatDataset ('datasets')."""
    if 'dataset' in dataset:
        yield from innermost_datasets(dataset['dataset'])
    elif 'datasets' in dataset:
        for inner in dataset['datasets']:
            yield from innermost_datasets(inner)
    else:
        yield dataset


def evaluators(cfg: Mapping[str, Any], split: str) -> list[MutableMapping[str, Any]]:
    """Returns the metrics of a split's evaluator that are given as dicts."""
    found = cfg.get(f'{split}_evaluator') or []
    found = found if isinstance(found, list | tuple) else [found]
    return [one for one in found if isinstance(one, MutableMapping)]


def _heads(node: Any, name: str) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Yields the parts of a model's config that have their own `num_classes`, and their names."""
    if isinstance(node, Mapping) and 'language_model' not in node:
        if isinstance(node.get('num_classes'), int) and 'semantic' not in name:
            yield name, node
        for key, value in node.items():
            if key != 'rpn_head':  # it has one class: object or background
                yield from _heads(value, f'{name}.{key}')
    elif isinstance(node, list | tuple):
        for i, value in enumerate(node):
            yield from _heads(value, f'{name}[{i}]')
