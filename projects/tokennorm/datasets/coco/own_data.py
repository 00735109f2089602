"""Sets a detector's config to a dataset in COCO format: data, class names, heads, evaluators and limits."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from mmengine.config import Config

from tokennorm.datasets.coco.checks import evaluators, innermost_datasets, set_num_classes
from tokennorm.datasets.coco.folder import SPLITS, CocoSplit
from tokennorm.datasets.coco.inspection import Inspection
from tokennorm.datasets.drawing import palette
from tokennorm.registry import type_name


def use_coco_splits(cfg: Config, splits: Mapping[str, CocoSplit], found: Inspection) -> list[str]:
    """Sets the datasets, class names, every head's number of classes, the evaluators and the limits on detections.

    Classes have the order of the first file's categories; their ids become `metainfo.category_ids`. Without a test
    split, testing uses val. If images have more objects than the config keeps detections, it keeps more.

    Returns:
        The limits that were changed, one line each.

    Raises:
        ValueError: for a config that does not train on one COCO dataset, or learns masks that the data does not have.
    """
    if 'test' not in splits and 'val' not in splits:
        raise ValueError('--data: the folder has annotations for neither val nor test')
    categories = next(iter(splits.values())).content['categories']
    metainfo = dict(
        classes=tuple(category['name'] for category in categories),
        palette=palette(len(categories)),
        category_ids=tuple(category['id'] for category in categories),
    )
    for name in SPLITS:
        split = splits.get(name, splits.get('val'))
        if cfg.get(f'{name}_dataloader') is not None and split is not None:
            _use_split(cfg, name, split, metainfo)
    set_num_classes(cfg['model'], len(categories))
    if found.mask_errors and learns_masks(cfg):
        raise ValueError(
            f'--data: this config learns masks. {". ".join(found.mask_errors)}. Fix these problems, or use a config '
            'for boxes'
        )
    return _fit_limits(cfg, found.most_objects)


def learns_masks(cfg: Mapping[str, Any]) -> bool:
    """Whether a detector is validated by its masks."""
    return any('segm' in evaluator.get('metric', 'bbox') for evaluator in _evaluators(cfg, 'val'))


def _use_split(cfg: Config, name: str, split: CocoSplit, metainfo: dict[str, Any]) -> None:
    datasets = list(innermost_datasets(cfg[f'{name}_dataloader']['dataset']))
    if len(datasets) != 1 or 'ann_file' not in datasets[0]:
        raise ValueError(
            f'--data: {name}_dataloader of this config does not read one COCO annotation file; use a config that '
            'does, such as mmdet has for COCO'
        )
    ann_file = str(split.ann_file.resolve())
    if 'filter_cfg' in datasets[0]:
        datasets[0]['filter_cfg']['min_size'] = 0  # keeps small images; images without objects as before
    datasets[0].update(
        type='CocoDataset',
        data_root='',
        metainfo=metainfo,
        ann_file=ann_file,
        data_prefix=dict(img=f'{split.image_dir.resolve()}/'),
    )
    for evaluator in _evaluators(cfg, name):
        evaluator['ann_file'] = ann_file


def _fit_limits(cfg: Config, most_objects: int) -> list[str]:
    """Keeps and counts as many detections per image as an image may have objects."""
    changes = []
    limit = -(-most_objects // 100) * 100
    for name, test_cfg in _test_cfgs(cfg['model'].get('test_cfg') or {}, 'model.test_cfg'):
        for key in ('max_per_img', 'nms_pre'):
            if key in test_cfg and 0 < test_cfg[key] < most_objects:
                changes.append(f'{name}.{key}={limit} instead of {test_cfg[key]}')
                test_cfg[key] = limit
    if most_objects > 100:
        counted = max(1000, limit)
        for evaluator in (e for name in ('val', 'test') for e in _evaluators(cfg, name)):
            # mmdet's bbox_mAP otherwise counts the best 100 of an image, whatever proposal_nums says.
            evaluator.update(use_mp_eval=True, proposal_nums=(100, 300, counted))
        changes.append(f'AP counts the best {counted} detections per image instead of 100')
    return [f'{change}, for images of up to {most_objects} objects' for change in changes]


def _evaluators(cfg: Config, split: str) -> list[MutableMapping[str, Any]]:
    """The COCO metrics of a split; train has none."""
    found = evaluators(cfg, split)
    for evaluator in found:
        if type_name(evaluator) != 'CocoMetric':
            raise ValueError(f'--data: {split}_evaluator of this config is {evaluator["type"]}, not CocoMetric')
    return found


def _test_cfgs(node: MutableMapping[str, Any], name: str) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Yields `model.test_cfg` and its parts, for proposals and detections, with their names."""
    yield name, node
    for key, value in node.items():
        if isinstance(value, MutableMapping):
            yield from _test_cfgs(value, f'{name}.{key}')
