"""Compares a config with its annotation files and the parts of a model with each other, and tries the first samples."""

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from mmdet.datasets import CocoDataset
from mmdet.registry import DATASETS
from mmengine.fileio import list_from_file
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tokennorm.config.tree import heads, innermost_datasets
from tokennorm.datasets.coco.folder import read_coco_file
from tokennorm.engine.resume.random_state import preserved_generators
from tokennorm.messages import UserError, shorten
from tokennorm.registry import type_name


def check_config_data(cfg: Mapping[str, Any], splits: tuple[str, ...]) -> None:
    """Checks the annotation files that a config names, and that the heads count the classes of the datasets."""
    for split in splits:
        loader = cfg.get(f'{split}_dataloader')
        if loader is None:
            continue
        for dataset in innermost_datasets(loader['dataset']):
            if dataset.get('backend_args') or '://' in f'{dataset.get("data_root")}{dataset.get("ann_file")}':
                continue  # at a URL, or in one of mmengine's file backends
            if not dataset.get('ann_file'):
                root = Path(dataset.get('data_root') or '.')
                if not root.is_dir():
                    raise UserError(f'{split}_dataloader: folder {root} not found; put the data there')
                continue
            check_annotations(dataset, split)
            # A panoptic dataset has thing_classes, which are what its heads count.
            classes = (dataset.get('metainfo') or {}).get('thing_classes') or _classes(dataset) or ()
            for name, head in heads(cfg['model']) if classes else ():
                if head['num_classes'] != len(classes):
                    raise UserError(
                        f'{name}.num_classes={head["num_classes"]}, but metainfo.classes of {split}_dataloader has '
                        f'{len(classes)}: set it to {len(classes)}'
                    )


def check_annotations(dataset: Mapping[str, Any], split: str) -> None:
    """Checks that an annotation file exists, and a COCO file's classes and their order."""
    role = f'{split}_dataloader'
    path = Path(dataset.get('data_root') or '', dataset['ann_file'])
    kind = _class_of(dataset)
    has_coco_format = kind is not None and issubclass(kind, CocoDataset)
    if not path.is_file():
        hint = 'set data_root' + (', or name your folder with --data' if has_coco_format else ', or put the data there')
        raise UserError(f'{role}: annotation file {path} not found; {hint}')
    if not has_coco_format:
        return
    classes = _classes(dataset)
    try:
        names = [str(category['name']) for category in read_coco_file(path, with_annotations=False)['categories']]
    except (ValueError, KeyError) as error:
        raise UserError(f'{role}: {path} is not a COCO annotation file ({type(error).__name__}: {error})') from error
    found = [name for name in names if name in (classes or names)]
    if classes is not None and (found != list(classes) if kind is CocoDataset else len(found) < len(classes)):
        absent = [name for name in classes if name not in names]
        raise UserError(
            f'{role}: metainfo.classes has {shorten(absent or classes, 100)}, but the categories in {path} are '
            f'{shorten(names, 100)}: give both the same names in the same order, in which mmdet numbers them'
        )


def _class_of(dataset: Mapping[str, Any]) -> type | None:
    """The class that a dataset's `type` names, with or without a scope; None if mmdet's registry does not have it."""
    return DATASETS.module_dict.get(type_name(dataset))


def _classes(dataset: Mapping[str, Any]) -> Sequence[str] | None:
    """The classes of a dataset's config or of a file that it names, or mmdet's default for `CocoDataset`, or None."""
    default = CocoDataset.METAINFO['classes'] if _class_of(dataset) is CocoDataset else None
    classes = (dataset.get('metainfo') or {}).get('classes', default)
    if not isinstance(classes, str):
        return classes
    if not Path(classes).is_file():
        raise UserError(f'metainfo.classes={classes!r} is neither a file nor a tuple of names, such as ({classes!r},)')
    return list_from_file(classes)


def check_classes(trained: Sequence[str], classes: Sequence[str], checkpoint: str) -> None:
    """Checks that the data has the classes that a checkpoint was trained with, in the same order."""
    if list(trained) == list(classes):
        return
    reason = 'in another order' if sorted(trained) == sorted(classes) else 'not the same'
    raise UserError(
        f'the classes of {checkpoint} and of the data are {reason}: {len(trained)} ({", ".join(trained)}) '
        f'and {len(classes)} ({", ".join(classes)}). Use the data that it was trained for, with --data or the config '
        'in its work directory, with its categories in that order'
    )


@torch.no_grad()
def check_feature_maps(model: nn.Module, neck_cfg: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> None:
    """Checks that neck and anchors fit the backbone's feature maps.

    The `in_channels` of the (first) neck are the channels in the backbone's `feature_info`, and the anchors or points
    of a head have the strides of the neck's feature maps, by a forward pass.
    """
    info = getattr(getattr(model, 'backbone', None), 'feature_info', None)
    if info is None:
        return
    channels = [entry['num_chs'] for entry in info]
    first = neck_cfg[0] if isinstance(neck_cfg, list | tuple) and neck_cfg else neck_cfg
    given = first.get('in_channels') if isinstance(first, Mapping) else None
    expected = channels[-1] if isinstance(given, int) else channels
    if given not in (None, expected):
        raise UserError(
            f'model.neck: in_channels={given}, but the feature maps of {type(model.backbone).__name__} have {channels} '
            f'channels: set it to {expected}'
        )
    neck = getattr(model, 'neck', None)
    head = next((name for name in ('rpn_head', 'bbox_head') if hasattr(model, name)), None)
    strides = getattr(getattr(getattr(model, head or '', None), 'prior_generator', None), 'strides', None)
    if neck is None or strides is None:
        return
    strides = [stride[0] for stride in strides]
    side = 4 * math.lcm(*strides, *(entry['reduction'] for entry in info))
    was_training, device = neck.training, next(model.parameters()).device
    neck.eval()  # keeps the statistics of batch norms
    with FakeTensorMode(allow_non_fake_inputs=True):  # shapes only
        sides = [side // entry['reduction'] for entry in info]
        maps = [torch.zeros(1, entry['num_chs'], s, s, device=device) for entry, s in zip(info, sides, strict=True)]
        found = [side // out.shape[-1] for out in neck(tuple(maps))]
    neck.train(was_training)
    if found != strides:
        raise UserError(
            f'model.{head}: its anchors have the strides {strides}, but the feature maps of the neck have {found}: '
            'change out_indices of the backbone, start_level and num_outs of the neck, or the anchors. A '
            'backbone with one feature map needs a patch size of 16 and the neck tokennorm.SimpleFeaturePyramid'
        )


def check_classifier(model: nn.Module, cfg: Mapping[str, Any]) -> None:
    """Checks that the head of a classifier has the channels of the backbone's last feature map, by `feature_info`."""
    info, given = getattr(getattr(model, 'backbone', None), 'feature_info', None), (cfg.get('head') or {})
    neck = cfg.get('neck')
    pools = neck is None or (isinstance(neck, Mapping) and type_name(neck) == 'GlobalAveragePooling')
    if info and pools and given.get('in_channels') not in (None, info[-1]['num_chs']):
        raise UserError(
            f'model.head: in_channels={given["in_channels"]}, but the last feature map of '
            f'{type(model.backbone).__name__} has {info[-1]["num_chs"]} channels: set it to {info[-1]["num_chs"]}'
        )


MOST_TRIED = 16  # samples: a crop may lose the objects of one


def check_training_samples(dataset: Any) -> None:
    """Checks that the pipeline of a detector keeps objects: one of the first images with objects must have some left.

    An augmentation whose sizes do not fit each other, such as a border wider than the mosaic that it cuts, otherwise
    trains without an object and without a word. The random generators stay as they are.
    """
    inner = next(innermost_datasets(dataset))
    if not hasattr(inner, 'get_data_info') or not hasattr(inner, 'pipeline'):
        return
    infos = (inner.get_data_info(index) for index in range(min(len(inner), len(dataset), 1000)))
    annotated = (
        index
        for index, info in enumerate(infos)
        if any(not one.get('ignore_flag') for one in info.get('instances') or ())
    )
    tried = 0
    with preserved_generators():
        for index in islice(annotated, MOST_TRIED):
            objects = getattr(dataset[index].get('data_samples'), 'gt_instances', None)
            if objects is None or len(objects):
                return
            tried += 1
    if tried:
        raise UserError(
            f'the training pipeline leaves no object in {tried} samples of images with objects, so that nothing would '
            f'be learned: its sizes do not fit each other or the images ({_steps(dataset)}). '
            'Set them with --cfg-options, or choose another --image-size'
        )


def _steps(dataset: Any) -> str:
    """The transforms of all pipelines of nested datasets, by their class names."""
    names = []
    while dataset is not None:
        steps = getattr(dataset, 'pipeline', ())
        names += [type(step).__name__ for step in getattr(steps, 'transforms', steps)]
        dataset = getattr(dataset, 'dataset', None)
    return ', '.join(names)
