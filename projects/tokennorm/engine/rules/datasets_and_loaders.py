"""Rules about annotation files, classes, evaluators and the first samples."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice, zip_longest
from pathlib import Path
from typing import Any

from tokennorm.base.messages import counted, shorten
from tokennorm.base.type_name import type_name
from tokennorm.config.tree import as_list, evaluators, innermost_datasets
from tokennorm.datasets.coco.annotation_rules import NO_OBJECTS
from tokennorm.datasets.coco.folder import read_coco_file
from tokennorm.datasets.discovery import UNREADABLE_DATA
from tokennorm.engine.rules.built import Built, Lines
from tokennorm.findings import rule
from tokennorm.findings.elsewhere import UNREAD_ENTRY

MOST_TRIED, MOST_LOOKED_AT = 16, 1000  # samples, of which a crop may lose the objects; images


# ---- config and annotation files, before datasets are built from them


@UNREAD_ENTRY.judged(on='config')
def unread_entry(built: Built) -> Lines:
    from tokennorm.config.open_config import unread_entries

    yield from unread_entries(built.cfg)


@rule('outside-recipe', 'error', 'this recipe is not made for --data', on='own data', about='config',
      why='With --data a recipe is rewritten for other classes, sizes and lengths. Recipes of teacher and student, of '
          'panoptic data and of language models are not understood, nor are the lengths of loops that count '
          'iterations.',
      do='Name the data in the config, and train it as it is: python tools/train.py CONFIG')  # fmt: skip
def outside_recipe(built: Built) -> Lines:
    model, loader = built.cfg['model'], built.cfg.get('train_dataloader')
    datasets = innermost_datasets(loader['dataset']) if loader else ()
    reasons = {
        'its loop counts iterations': 'max_iters' in (built.cfg.get('train_cfg') or {}),
        'it has a teacher and a student': 'semi_train_cfg' in model,
        'it learns from panoptic data': any('Panoptic' in type_name(dataset) for dataset in datasets),
        'it has a language model, which finds classes by their names': 'language_model' in model,
    }
    yield from (('--data', reason) for reason, holds in reasons.items() if holds)


def annotation_files(cfg: Mapping[str, Any], splits: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any], Path]]:
    """Yields the loader, the config and the annotation file, or else the folder, of each dataset on this machine."""
    for split in splits:
        loader = cfg.get(f'{split}_dataloader')
        for dataset in innermost_datasets(loader['dataset']) if loader else ():
            root, name = dataset.get('data_root') or '', dataset.get('ann_file') or ''
            if not dataset.get('backend_args') and '://' not in f'{root}{name}':  # nor in mmengine's file backends
                yield f'{split}_dataloader', dataset, Path(root, name)


def _coco_class(dataset: Mapping[str, Any]) -> Any:
    from mmdet.datasets import CocoDataset
    from mmdet.registry import DATASETS

    cls = DATASETS.module_dict.get(type_name(dataset))
    return cls if cls is not None and issubclass(cls, CocoDataset) else None


@rule('missing-annotations', 'error', 'the annotations of a config are not found', on='config', about='config',
      can_allow=False, why='There is nothing to train on.',
      do='Set data_root, or put the data there; --data reads COCO, YOLO and Pascal VOC from '
         'a folder instead')  # fmt: skip
def missing_annotations(built: Built) -> Lines:
    for where, dataset, path in annotation_files(built.cfg, built.splits):
        if not path.exists():
            yield where, f'{"annotation file" if dataset.get("ann_file") else "folder"} {path} not found'


@rule('class-names', 'error', 'metainfo.classes is text, and names no file', on='config', about='config',
      can_allow=False, why='mmdet would take its letters for the names of classes.',
      do="Set a tuple of names, such as ('cat',), or a file with one name per line")  # fmt: skip
def class_names(built: Built) -> Lines:
    for where, dataset, _path in annotation_files(built.cfg, built.splits):
        classes = (dataset.get('metainfo') or {}).get('classes')
        if isinstance(classes, str) and not Path(classes).is_file():
            yield where, f'metainfo.classes={classes!r} is neither a file nor a tuple of names, such as ({classes!r},)'


@rule('class-order', 'error', 'metainfo.classes and the categories of the annotation file differ', on='config',
      about='config',
      why='mmdet numbers classes in the order of the file, and names them in that of metainfo: each AP would be that '
          'of another class. Objects of a class that the file lacks are not found.',
      do='Give both the same names in the same order')  # fmt: skip
def class_order(built: Built) -> Lines:
    from mmdet.datasets import CocoDataset
    from mmengine.fileio import list_from_file

    for where, dataset, path in annotation_files(built.cfg, built.splits):
        cls = _coco_class(dataset)
        if cls is None or not path.is_file():
            continue
        try:
            names = [str(category['name']) for category in read_coco_file(path, with_annotations=False)['categories']]
        except (ValueError, KeyError) as error:
            text = f'{path} is not a COCO annotation file ({type(error).__name__}: {error})'
            UNREADABLE_DATA.refuse(where, text)
        classes = (dataset.get('metainfo') or {}).get('classes', cls.METAINFO.get('classes'))
        if isinstance(classes, str):
            classes = list_from_file(classes) if Path(classes).is_file() else None
        in_both = [name for name in names if name in (classes or names)]
        in_order = cls.load_data_list is CocoDataset.load_data_list
        if classes is not None and (in_both != list(classes) if in_order else len(in_both) < len(classes)):
            given = shorten([name for name in classes if name not in names] or classes, 100)
            yield where, f'metainfo.classes has {given}, but the categories in {path} are {shorten(names, 100)}'


# ---- classes of built datasets


def _classes(dataset: Any) -> Iterator[tuple[Mapping[str, Any], Sequence[str]]]:
    """Yields the metainfo and the names of classes of a dataset, or of each one inside."""
    metas = getattr(dataset, 'metainfo', None) or {}
    for meta in as_list(metas):
        classes = meta.get('classes') or ()
        if not isinstance(classes, str) and all(isinstance(name, str) for name in classes):
            yield meta, classes


def _heads(model: Any) -> Iterator[tuple[str, str, int, bool]]:
    """Yields each head with a loss that counts the classes of the data: its name, the attribute, its value, and whether
    more than the data has are usual. Language models find classes by their names."""
    for name, part in model.named_modules() if not hasattr(model, 'language_model') else ():
        losses = [key for key in (*vars(part), *part._modules) if key.startswith('loss_')]
        key = 'num_things_classes' if hasattr(part, 'num_things_classes') else 'num_classes'
        other = re.search('rpn|reid', f'{name} {type(part).__name__}', re.IGNORECASE) or 'loss_seg' in losses
        if losses and not other and type(count := getattr(part, key, None)) is int:
            yield f'model.{name}', key, count, 'loss_module' in losses


@rule('head-classes', 'error', 'a head counts other classes than the data has', on='built', about='config',
      why='With fewer classes training fails or leaves classes out; the outputs of more are never trained.',
      do='Set num_classes to the number of classes')  # fmt: skip
def head_classes(built: Built) -> Lines:
    for split, dataset in built.data.items():
        for meta, classes in _classes(dataset):
            things = meta.get('thing_classes')  # of panoptic data, where they are not only those of the dataset's class
            wanted = len(things if things and set(things) <= set(classes) else classes)
            for name, key, count, may_be_more in _heads(built.model):
                if wanted and (count < wanted or (count != wanted and not may_be_more)):
                    text = f'the data of {split} has {counted(wanted, "class")}: {shorten(classes)}'
                    yield f'{name}.{key}={count}', text


@rule('class-numbers', 'error', 'the splits number a class differently', on='built', about='config',
      why='The detector numbers the classes of train; others would be scored as another class.',
      do='Give all datasets the same classes in the same order')  # fmt: skip
def class_numbers(built: Built) -> Lines:
    numbers: dict[str, int] = {}
    for split, dataset in built.data.items() if not hasattr(built.model, 'language_model') else ():
        for _meta, classes in _classes(dataset):
            if moved := [name for i, name in enumerate(classes) if numbers.setdefault(name, i) != i]:
                yield split, f'the data numbers {moved[0]} otherwise than the data before it: {shorten(classes, 100)}'


# ---- evaluators


def _images(dataset: Any) -> list[tuple[Any, str]]:
    """Returns the id and the file name of each image of a dataset; none where it has no ids."""
    parts = [part for part in innermost_datasets(dataset) if hasattr(part, 'get_data_info')]
    parts = [part for part in parts if getattr(part, '_fully_initialized', True)]  # mmengine's, of one that was read
    infos = (part.get_data_info(i) for part in parts for i in range(len(part)))
    return [(info['img_id'], Path(str(info.get('img_path'))).name) for info in infos if 'img_id' in info]


@rule('evaluator-images', 'error', 'an evaluator has other annotations than the images that its loader reads',
      on='built', about='config', why='AP would be that of other objects.',
      do='Set ann_file of both to the same file')  # fmt: skip
def evaluator_images(built: Built) -> Lines:
    for split, dataset in built.data.items():
        metrics = zip_longest(built.metrics.get(split, ()), evaluators(built.cfg, split), fillvalue={})
        for metric, given in metrics:  # mmdet's do not keep the name of their file
            if (api := getattr(metric, '_coco_api', None)) is not None:
                listed = {(key, Path(str(image.get('file_name'))).name) for key, image in api.imgs.items()}
                if others := [name for key, name in _images(dataset) if (key, name) not in listed]:
                    file = given.get('ann_file') or 'its file'
                    text = f'{file} does not list images that {split}_dataloader reads, or with other ids'
                    yield f'{split}_evaluator', text, others


# ---- first samples


@NO_OBJECTS.judged(on='samples')
def sampled_objects(built: Built) -> Lines:
    parts = list(innermost_datasets(built.data['train']))
    has_infos = all(hasattr(part, 'get_data_info') and 0 < len(part) <= MOST_LOOKED_AT for part in parts)
    is_whole = sum(map(len, parts)) <= len(built.data['train'])
    known = has_infos and is_whole and all('instances' in part.get_data_info(0) for part in parts)
    if known and not any(_with_objects(part) for part in parts):
        names = shorten((getattr(parts[0], 'metainfo', None) or {}).get('classes') or ())
        yield 'train', f'no training image has an object of the classes {names}: are they those of the annotations?'


@rule('lost-objects', 'error', 'the training pipeline leaves no object', on='samples', about='config',
      why='Nothing would be learned. The sizes of its steps do not fit each other or the images.',
      do='Set them with --cfg-options, or choose another --image-size')  # fmt: skip
def lost_objects(built: Built) -> Lines:
    """An augmentation whose sizes do not fit each other, such as a border wider than the mosaic that it cuts."""
    from tokennorm.engine.resume.random_state import preserved_generators

    dataset = built.data['train']
    for part in getattr(dataset, 'datasets', [dataset]):  # of several files
        inner = next(innermost_datasets(part))
        if hasattr(inner, 'get_data_info') and hasattr(inner, 'pipeline'):
            images = [index for index in _with_objects(inner)[:MOST_TRIED] if index < len(part)]
            tried = list(islice(cycle(images), MOST_TRIED))  # a few images several times: a crop may lose the objects
            refetches, inner.max_refetch = getattr(inner, 'max_refetch', 0), 0  # no other images in their place
            with preserved_generators():
                is_lost = tried and not any(_has_objects(part, index) for index in tried)
            inner.max_refetch = refetches
            if is_lost:
                steps = _transforms(part) if part is inner else _transforms(part) + _transforms(inner)
                samples = counted(len(tried), 'sample')
                text = f'the training pipeline leaves no object in {samples} of images with objects'
                yield 'train', text, steps


def _transforms(dataset: Any) -> list[str]:
    pipeline = getattr(dataset, 'pipeline', ())
    return [type(step).__name__ for step in getattr(pipeline, 'transforms', pipeline)]


def _with_objects(dataset: Any) -> list[int]:
    """Returns the indices of images with objects that are trained on, among the first ones."""
    infos = (dataset.get_data_info(index) for index in range(min(len(dataset), MOST_LOOKED_AT)))
    objects = [[entry for entry in info.get('instances') or () if not entry.get('ignore_flag')] for info in infos]
    return [index for index, entries in enumerate(objects) if entries]


def _has_objects(dataset: Any, index: int) -> bool:
    """Returns whether a sample has objects, or is of a kind that has none."""
    try:
        objects = getattr(dataset[index].get('data_samples'), 'gt_instances', None)
    except Exception as error:  # mmengine raises no other class where a transform leaves nothing
        if 'Cannot find valid image' in str(error) or 'always return' in str(error):
            return False
        raise
    return objects is None or len(objects) > 0
