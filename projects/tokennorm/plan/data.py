"""`--data`: points a config at a folder: data, class names, heads, evaluators, limits and image size."""

import os
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from mmengine.config import Config

from tokennorm.base.messages import UserError, counted, user_errors
from tokennorm.base.ranks import is_first_process, print_once
from tokennorm.config.open_config import drop_variables
from tokennorm.config.tree import as_list, evaluators, innermost_datasets, is_classifier, loaders, set_num_classes, walk
from tokennorm.datasets.coco.entries import original_id
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.contact_sheet import palette
from tokennorm.datasets.discovery import find_splits
from tokennorm.datasets.image_files import IMAGE_SUFFIXES
from tokennorm.datasets.image_folder import ImageSplit, find_image_folder
from tokennorm.datasets.splits import CocoSplit
from tokennorm.findings import collected
from tokennorm.findings.elsewhere import POOR_ANCHORS, UNSCALED_SIZE
from tokennorm.plan.anchor_fit import MATCH, anchor_fit
from tokennorm.plan.changes import Plan
from tokennorm.plan.image_size import fitting_size, set_image_size, short_side
from tokennorm.registry import type_name

Split = TypeVar('Split', CocoSplit, ImageSplit)

_HINT = 'use a config of this model for detection on COCO, such as mmdet has'


def use_data_folder(
    plan: Plan | Config,
    folder: str | Path,
    needed: tuple[str, ...],
    image_size: int | None = None,
    fit_images: bool = True,
    fit_anchors: bool = False,
    splits: dict[str, CocoSplit] | None = None,
    tested: str = 'test',
) -> None:
    """Points a plan, or a config, at a folder: COCO, YOLO or Pascal VOC, or for a classifier one folder per class.

    The folder must have the `needed` splits; `splits` are those of a detection dataset that has been parsed. Testing
    uses the split `tested`, and without one called test val. With
    `fit_images`, a detector's images get a short side of `image_size` pixels, or less than the config's if it would
    enlarge them more than twofold, and the anchors are compared with the objects. With `fit_anchors`, better sizes are
    set where the detector has no trained weights for the config's.
    """
    plan = Plan(plan) if isinstance(plan, Config) else plan
    if is_classifier(plan.cfg):
        with user_errors(ValueError, OSError):  # of the user's files
            images = find_image_folder(folder, needed)
        print_once(*(f'--data: {split.summary(name)}' for name, split in images.items()))
        with plan.step(f'data of {folder}', show=False):
            use_image_folder(plan.cfg, images, tested)
        number = len(next(iter(images.values())).counts)
        with plan.step(f'--data: {counted(number, "class")}'):
            limit_topk(plan.cfg, number)
    else:
        with collected() as findings:
            findings.masks = learns_masks(plan.cfg)
            splits = splits or find_splits(folder, needed)
            inspection = inspect_splits(splits, open_images=is_first_process())
            print_once(str(folder), *inspection.lines(findings))
            findings.skip()
            findings.stop(before=f'{folder} has errors, listed above; fix these problems and rerun')
        with plan.step(f'data of {folder}', show=False):
            use_coco_splits(plan.cfg, splits, tested)
        with plan.step('--data: there are masks as run lengths, which mmdet leaves out with poly2mask=False'):
            read_run_lengths(plan.cfg, splits)
        with plan.step(f'--data: images have up to {counted(inspection.most_objects, "object")}'):
            fit_limits(plan.cfg, inspection.most_objects)
        if fit_images:
            content = next(iter(splits.values())).content
            choose_image_size(plan, content, image_size)
            fit_or_describe_anchors(plan, content, fit_anchors and not plan.cfg.get('load_from'))
    with plan.step('variables name other data', show=False):
        drop_variables(plan.cfg)


def fit_or_describe_anchors(plan: Plan, content: Mapping[str, Any], may_change: bool) -> None:
    """Compares the anchors with the objects, and sets better sizes if the config may change and the user has not."""
    fit = anchor_fit(plan.cfg, content)
    if fit is None:
        return
    if fit.is_poor and may_change:
        value, share = fit.better[0]
        why = f'anchors that match {1 - share:.1%} of the boxes at IoU {MATCH}, instead of {1 - fit.unmatched:.1%}'
        if plan.set(fit.key, value, f'--data: {why}'):
            return
    if not fit.is_poor:
        print_once(f'--data: {fit.summary()}')
    else:
        POOR_ANCHORS.report(text=fit.summary())


def choose_image_size(plan: Plan, content: Mapping[str, Any], image_size: int | None) -> None:
    """Sets the short side of a detector's images: `image_size`, or less than the config's where images are small."""
    size = image_size
    if size is None and content['images']:
        size = fitting_size(plan.cfg, median(min(i['width'], i['height']) for i in content['images']))
    if size is not None:
        resize_images(plan, size, '--data: ' if image_size is None else '')


def resize_images(plan: Plan, size: int, by: str = '') -> None:
    """Sets the short side of the images, in pixels."""
    old = short_side(plan.cfg)
    with plan.step(f'{by}short side of the images {size} pixels (recipe: {old})'):
        left = set_image_size(plan.cfg, size)
    UNSCALED_SIZE.report_items('', left)


def use_test_split(cfg: Config, split: str) -> None:
    """Has testing read the data that a config has for another split, with the pipeline and loader of testing."""
    if split == 'test':
        return
    if cfg.get(f'{split}_dataloader') is None or cfg.get('test_dataloader') is None:
        raise UserError(f'--split {split}: this config has no {split}_dataloader or no test_dataloader; use --data DIR')
    read, tested = _only_dataset(cfg, split), _only_dataset(cfg, 'test')
    for key in ('data_root', 'ann_file', 'data_prefix', 'metainfo', 'split'):
        tested.pop(key, None)
        if key in read:
            tested[key] = read[key]
    for evaluator in evaluators(cfg, 'test') if 'ann_file' in read else ():
        evaluator['ann_file'] = os.path.join(read.get('data_root') or '', read['ann_file'])


def _by_loader(cfg: Config, splits: Mapping[str, Split], tested: str) -> Iterator[tuple[str, Split]]:
    """Yields the loaders that a config has, each with the split that it reads."""
    for loader, name in dict(train='train', val='val', test=tested).items():
        split = splits.get(name, splits.get('val'))
        if cfg.get(f'{loader}_dataloader') is not None and split is not None:
            yield loader, split


def use_image_folder(cfg: Config, splits: Mapping[str, ImageSplit], tested: str = 'test') -> None:
    """Sets a classifier's datasets, class names and numbers of classes. Testing uses the split `tested`, or val."""
    classes = tuple(next(iter(splits.values())).counts)
    for name, split in _by_loader(cfg, splits, tested):
        dataset = _only_dataset(cfg, name)
        pipeline = dataset['pipeline']
        dataset.clear()
        dataset.update(type='CustomDataset', data_root='', data_prefix=str(split.folder.resolve()))
        dataset.update(metainfo=dict(classes=classes), extensions=IMAGE_SUFFIXES, pipeline=pipeline)
    set_num_classes(cfg['model'], len(classes))
    if cfg.get('data_preprocessor') is not None:
        cfg.data_preprocessor.num_classes = len(classes)


def limit_topk(cfg: Config, classes: int) -> None:
    """Limits the k of top-k accuracies to the number of classes."""
    for key in ('model', 'val_evaluator', 'test_evaluator'):
        for _, part in walk(cfg.get(key), key):
            topk = as_list(part.get('topk', ()))
            if any(k > classes for k in topk):
                part['topk'] = tuple(k for k in topk if k <= classes) or (1,)


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
    for loader in loaders(cfg):
        loader.setdefault('pin_memory', torch.cuda.is_available())
        loader.setdefault('collate_fn', dict(type='default_collate'))
        loader.setdefault('persistent_workers', loader.get('num_workers', 0) > 0)


def use_coco_splits(cfg: Config, splits: Mapping[str, CocoSplit], tested: str = 'test') -> None:
    """Sets the datasets, class names, every head's number of classes and the evaluators.

    Classes have the order of the first file's categories; their ids become `metainfo.category_ids`. Testing uses the
    split `tested`, or val without.
    """
    if tested not in splits and 'val' not in splits:
        raise UserError('--data: the folder has annotations for neither val nor test')
    categories = next(iter(splits.values())).content['categories']
    names, ids = tuple(category['name'] for category in categories), tuple(map(original_id, categories))
    metainfo = dict(classes=names, palette=palette(len(categories)), category_ids=ids)
    for name, split in _by_loader(cfg, splits, tested):
        _use_split(cfg, name, split, metainfo)
    set_num_classes(cfg['model'], len(categories))


def read_run_lengths(cfg: Config, splits: Mapping[str, CocoSplit]) -> None:
    """Has masks read as bitmaps where some are run lengths."""
    annotations = (a for split in splits.values() for a in split.content['annotations'])
    if any(isinstance(annotation.get('segmentation'), Mapping) for annotation in annotations):
        for place in ('train_dataloader', 'custom_hooks'):  # these switch pipelines
            for _, step in walk(cfg.get(place)):
                if step.get('poly2mask') is False:
                    step['poly2mask'] = True


def learns_masks(cfg: Mapping[str, Any]) -> bool:
    """Returns whether a detector is validated by its masks."""
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


def fit_limits(cfg: Config, most_objects: int) -> None:
    """Keeps and counts as many detections per image as an image may have objects."""
    limit = -(-most_objects // 100) * 100
    for _, test_cfg in walk(cfg['model'].get('test_cfg')):
        for key in ('max_per_img', 'nms_pre'):
            if key in test_cfg and 0 < test_cfg[key] < most_objects:
                test_cfg[key] = limit
    for evaluator in (e for name in ('val', 'test') for e in _coco_metrics(cfg, name)) if most_objects > 100 else ():
        # mmdet's bbox_mAP otherwise counts the best 100 of an image, whatever proposal_nums says.
        evaluator.update(use_mp_eval=True, proposal_nums=(100, 300, max(1000, limit)))


def _coco_metrics(cfg: Mapping[str, Any], split: str) -> list[MutableMapping[str, Any]]:
    """The COCO metrics of a split; train has none."""
    metrics = evaluators(cfg, split)
    for evaluator in metrics:
        if type_name(evaluator) != 'CocoMetric':
            raise UserError(f'--data: {split}_evaluator of this config is {evaluator["type"]}, not CocoMetric; {_HINT}')
    return metrics


def limit_detections(model: Mapping[str, Any]) -> None:
    """Lowers the detections per image of a DETR to those that its queries can give, where mmdet would fail."""
    test_cfg, head = model.get('test_cfg') or {}, model.get('bbox_head') or {}
    classes = head.get('num_classes', 1) if (head.get('loss_cls') or {}).get('use_sigmoid') else 1
    most = model.get('num_queries', 0) * classes
    if 0 < most < test_cfg.get('max_per_img', 0):
        test_cfg['max_per_img'] = most
