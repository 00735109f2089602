"""`--data`: points a config at a folder: data, class names, heads, evaluators, limits and image size."""

from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from mmengine.config import Config

from tokennorm.config.image_size import ANCHORS, IMAGE_SIZE, fitting_size, set_image_size, short_side
from tokennorm.config.reading import drop_variables
from tokennorm.config.tree import evaluators, innermost_datasets, is_classifier, set_num_classes, walk
from tokennorm.datasets.anchor_fit import MATCH, anchor_fit, anchor_sizes
from tokennorm.datasets.coco.inspection import Inspection, inspect_splits
from tokennorm.datasets.coco.normalizing import original_id
from tokennorm.datasets.drawing import palette
from tokennorm.datasets.finding import find_splits
from tokennorm.datasets.image_files import IMAGE_SUFFIXES
from tokennorm.datasets.image_folder import ImageSplit, find_image_folder
from tokennorm.datasets.splits import SPLITS, CocoSplit
from tokennorm.messages import UserError, user_errors
from tokennorm.ranks import is_first_process, print_once
from tokennorm.registry import type_name

_HINT = 'use a config of this model for detection on COCO, such as mmdet has'


def find_detection_data(
    folder: str | Path, needed: tuple[str, ...] = ('train', 'val'), where: str = ''
) -> dict[str, CocoSplit]:
    """Finds and parses a COCO, YOLO or Pascal VOC dataset, which must have the `needed` splits.

    `where` precedes the text of an error.
    """
    with user_errors(ValueError, OSError, where=where):  # of the user's files
        return find_splits(folder, needed)


def use_data_folder(
    cfg: Config,
    folder: str | Path,
    needed: tuple[str, ...],
    image_size: int | None = None,
    fit_images: bool = True,
    fit_anchors: bool = False,
    splits: dict[str, CocoSplit] | None = None,
) -> None:
    """Points a config at a folder: for a detector COCO, YOLO or Pascal VOC, for a classifier one folder per class.

    The folder must have the `needed` splits; `splits` are those of a detection dataset that has been parsed. With
    `fit_images`, a detector's images get a short side of `image_size` pixels, or less than the config's if it would
    enlarge them more than twofold, and the anchors are compared with the objects. With `fit_anchors`, better sizes are
    set where the detector has no trained weights for the config's.
    """
    if is_classifier(cfg):
        with user_errors(ValueError, OSError):  # of the user's files
            images = find_image_folder(folder, needed)
        changes = [split.summary(name) for name, split in images.items()] + use_image_folder(cfg, images)
    else:
        splits = splits or find_detection_data(folder, needed)
        problems = inspect_splits(splits, open_images=is_first_process())
        print_once(f'{folder}\n\n{problems.text(learns_masks(cfg))}\n')
        if problems.errors:
            raise UserError(f'{folder} has errors, listed above; fix these problems and rerun')
        changes = use_coco_splits(cfg, splits, problems)
        if fit_images:
            content = next(iter(splits.values())).content
            changes += choose_image_size(cfg, content, image_size)
            changes += fit_or_describe_anchors(cfg, content, fit_anchors and not cfg.get('load_from'))
    drop_variables(cfg)  # they name other data
    print_once(*(f'--data: {change}' for change in changes))


def fit_or_describe_anchors(cfg: Config, content: Mapping[str, Any], may_change: bool) -> list[str]:
    """Compares the anchors with the objects, and sets better sizes if the config may change. Returns lines of text."""
    fit = anchor_fit(cfg, content)
    if fit is None or not (fit.is_poor and may_change):
        return [] if fit is None else [fit.summary()]
    value, share = fit.better[0]
    cfg.merge_from_dict({fit.key: value})
    better = f'{fit.key}={value}, whose anchors match {1 - share:.1%} of the boxes at IoU {MATCH}'
    return [f'{better}; those of {fit.value} match {1 - fit.unmatched:.1%}']


def choose_image_size(cfg: Config, content: Mapping[str, Any], image_size: int | None) -> list[str]:
    """Sets the size of a detector's images, and notes it in the datasets' metainfo, which checkpoints keep.

    A size of None is the config's, or less where the images are small. Returns the changes, one line each.
    """
    if image_size is None and content['images']:
        image_size = fitting_size(cfg, median(min(i['width'], i['height']) for i in content['images']))
    if image_size is None:
        return []
    _note(cfg, IMAGE_SIZE, image_size)
    return set_image_size(cfg, image_size)


def note_sizes(cfg: Config, own_data: bool) -> None:
    """Notes the sizes of the anchors in the datasets' metainfo, for configs that differ from this one.

    The config of an earlier run has notes. They follow what options or the user's editor have changed since.
    """
    noted = {key for dataset in _datasets(cfg) for key in dataset.get('metainfo') or ()}
    if (own_data or ANCHORS in noted) and (sizes := anchor_sizes(cfg)):
        _note(cfg, ANCHORS, list(sizes))
    if IMAGE_SIZE in noted and (size := short_side(cfg)) is not None:
        _note(cfg, IMAGE_SIZE, size)


def _note(cfg: Config, key: str, value: Any) -> None:
    for dataset in _datasets(cfg):
        dataset['metainfo'] = {**(dataset.get('metainfo') or {}), key: value}


def _datasets(cfg: Config) -> Iterator[MutableMapping[str, Any]]:
    for name in SPLITS:
        yield from innermost_datasets((cfg.get(f'{name}_dataloader') or {}).get('dataset') or {})


def use_image_folder(cfg: Config, splits: Mapping[str, ImageSplit]) -> list[str]:
    """Sets a classifier's datasets, class names, numbers of classes and the k of its top-k accuracy, in place.

    Testing uses the test split, or val without one. Returns the changes to top-k accuracies, one line each.
    """
    classes = tuple(next(iter(splits.values())).counts)
    for name in SPLITS:
        split = splits.get(name, splits.get('val'))
        if cfg.get(f'{name}_dataloader') is None or split is None:
            continue
        dataset = _only_dataset(cfg, name)
        pipeline = dataset['pipeline']
        dataset.clear()
        dataset.update(type='CustomDataset', data_root='', data_prefix=str(split.folder.resolve()))
        dataset.update(metainfo=dict(classes=classes), extensions=IMAGE_SUFFIXES, pipeline=pipeline)
    set_num_classes(cfg['model'], len(classes))
    if cfg.get('data_preprocessor') is not None:
        cfg.data_preprocessor.num_classes = len(classes)
    changes = []
    for key in ('model', 'val_evaluator', 'test_evaluator'):
        for name, part in walk(cfg.get(key), key):
            topk = part.get('topk', ())
            topk = topk if isinstance(topk, list | tuple) else (topk,)
            if any(k > len(classes) for k in topk):
                part['topk'] = tuple(k for k in topk if k <= len(classes)) or (1,)
                changes.append(f'{name}: topk={part["topk"]}, since there are {len(classes)} classes')
    return changes


def _only_dataset(cfg: Config, name: str) -> MutableMapping[str, Any]:
    """The one dataset of a loader, inside its wrappers."""
    datasets = list(innermost_datasets(cfg[f'{name}_dataloader']['dataset']))
    if len(datasets) != 1:
        raise UserError(f'--data: {name}_dataloader of this config does not read one dataset; {_HINT}')
    return datasets[0]


def use_loader_defaults(cfg: Config) -> None:
    """Sets the loaders' defaults of mmpretrain's tools: pinned memory, batches as one tensor, persistent workers.

    Without persistent workers every epoch would repeat the random numbers of the first.
    """
    for loader in filter(None, (cfg.get(f'{name}_dataloader') for name in SPLITS)):
        loader.setdefault('pin_memory', torch.cuda.is_available())
        loader.setdefault('collate_fn', dict(type='default_collate'))
        loader.setdefault('persistent_workers', loader.get('num_workers', 0) > 0)


def use_coco_splits(cfg: Config, splits: Mapping[str, CocoSplit], found: Inspection) -> list[str]:
    """Sets the datasets, class names, every head's number of classes, the evaluators and the limits on detections.

    Classes have the order of the first file's categories; their ids become `metainfo.category_ids`. Without a test
    split, testing uses val. If images have more objects than the config keeps detections, it keeps more. Returns the
    limits that were changed, one line each.
    """
    if 'test' not in splits and 'val' not in splits:
        raise UserError('--data: the folder has annotations for neither val nor test')
    categories = next(iter(splits.values())).content['categories']
    names, ids = tuple(category['name'] for category in categories), tuple(map(original_id, categories))
    metainfo = dict(classes=names, palette=palette(len(categories)), category_ids=ids)
    for name in SPLITS:
        split = splits.get(name, splits.get('val'))
        if cfg.get(f'{name}_dataloader') is not None and split is not None:
            _use_split(cfg, name, split, metainfo)
    set_num_classes(cfg['model'], len(categories))
    if found.mask_errors and learns_masks(cfg):
        raise UserError(
            f'--data: this config learns masks. {". ".join(found.mask_errors)}. Fix these problems, or use a config '
            'for boxes'
        )
    return _fit_limits(cfg, found.most_objects)


def learns_masks(cfg: Mapping[str, Any]) -> bool:
    """Whether a detector is validated by its masks."""
    return any('segm' in evaluator.get('metric', 'bbox') for evaluator in _coco_metrics(cfg, 'val'))


def _use_split(cfg: Config, name: str, split: CocoSplit, metainfo: dict[str, Any]) -> None:
    dataset, ann_file = _only_dataset(cfg, name), str(split.ann_file.resolve())
    if 'ann_file' not in dataset:
        raise UserError(f'--data: {name}_dataloader of this config does not read a COCO annotation file; {_HINT}')
    if 'filter_cfg' in dataset:
        dataset['filter_cfg'] = dict(filter_empty_gt=False, min_size=0)  # keeps images without objects, small ones
    dataset.update(type='tokennorm.CocoDataset', data_root='', metainfo=metainfo, ann_file=ann_file)
    dataset['data_prefix'] = dict(img=f'{split.image_dir.resolve()}/')
    for evaluator in _coco_metrics(cfg, name):
        evaluator['ann_file'] = ann_file


def _fit_limits(cfg: Config, most_objects: int) -> list[str]:
    """Keeps and counts as many detections per image as an image may have objects."""
    changes = []
    limit = -(-most_objects // 100) * 100
    for name, test_cfg in walk(cfg['model'].get('test_cfg'), 'model.test_cfg'):
        for key in ('max_per_img', 'nms_pre'):
            if key in test_cfg and 0 < test_cfg[key] < most_objects:
                changes.append(f'{name}.{key}={limit} instead of {test_cfg[key]}')
                test_cfg[key] = limit
    if most_objects > 100:
        counted = max(1000, limit)
        for evaluator in (e for name in ('val', 'test') for e in _coco_metrics(cfg, name)):
            # mmdet's bbox_mAP otherwise counts the best 100 of an image, whatever proposal_nums says.
            evaluator.update(use_mp_eval=True, proposal_nums=(100, 300, counted))
        changes.append(f'AP counts the best {counted} detections per image instead of 100')
    return [f'{change}, for images of up to {most_objects} objects' for change in changes]


def _coco_metrics(cfg: Mapping[str, Any], split: str) -> list[MutableMapping[str, Any]]:
    """The COCO metrics of a split; train has none."""
    found = evaluators(cfg, split)
    for evaluator in found:
        if type_name(evaluator) != 'CocoMetric':
            raise UserError(f'--data: {split}_evaluator of this config is {evaluator["type"]}, not CocoMetric; {_HINT}')
    return found
