"""Walks through configs: datasets inside wrappers, evaluators, heads, and all other dicts."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from tokennorm.base.type_name import type_name


def is_classifier(cfg: Mapping[str, Any]) -> bool:
    """Returns whether a config is a classifier of mmpretrain."""
    return type_name(cfg.get('model') or {}).endswith('Classifier')


def set_num_classes(model: Any, num_classes: int) -> None:
    """Sets the number of classes of every head that counts the classes of the data, in place."""
    for head, before in class_counts(model):
        if 'num_classes' in head:
            head['num_classes'] = num_classes
        if 'num_things_classes' in head:
            head.update(num_things_classes=num_classes, num_stuff_classes=0)
        loss = head.get('loss_cls') or {}
        weights = loss.get('class_weight')
        if isinstance(weights, list | tuple) and before != num_classes:
            loss['class_weight'] = [weights[0]] * num_classes + list(weights[before:])  # the rest is of no object


def class_counts(model: Any) -> list[tuple[MutableMapping[str, Any], int]]:
    """Returns every head that counts the classes of the data, with the number of its classes."""
    counts = []
    for name, part in walk(model, 'model'):
        if 'num_things_classes' in part:  # of MaskFormer and Mask2Former
            counts.append((part, part['num_things_classes'] + part.get('num_stuff_classes', 0)))
        # An rpn_head has one class, object or background.
        elif isinstance(part.get('num_classes'), int) and 'rpn_head' not in name and 'semantic' not in name:
            counts.append((part, part['num_classes']))
    return counts


def loaders(cfg: Mapping[str, Any]) -> list[Any]:
    """Returns the loaders that a config has."""
    return [loader for split in ('train', 'val', 'test') if (loader := cfg.get(f'{split}_dataloader')) is not None]


def innermost_datasets(dataset: Any) -> Iterator[Any]:
    """Yields the datasets, or their configs, inside wrappers such as RepeatDataset and ConcatDataset."""
    entries = dataset if isinstance(dataset, Mapping) else getattr(dataset, '__dict__', {})
    if 'dataset' in entries:
        yield from innermost_datasets(entries['dataset'])
    elif 'datasets' in entries:
        for inner in entries['datasets']:
            yield from innermost_datasets(inner)
    else:
        yield dataset


def evaluators(cfg: Mapping[str, Any], split: str) -> list[MutableMapping[str, Any]]:
    """Returns the metrics of a split's evaluator that are given as dicts."""
    metrics = cfg.get(f'{split}_evaluator') or []
    if isinstance(metrics, Mapping) and ('metrics' in metrics or type_name(metrics) in ('None', 'Evaluator')):
        metrics = metrics.get('metrics') or []  # as mmengine's evaluators wrap them
    return [metric for metric in as_list(metrics) if isinstance(metric, MutableMapping)]


def as_list(value: Any) -> list[Any]:
    """Returns the entries of a list or a tuple, or the one value that a config may have in its place."""
    return list(value) if isinstance(value, list | tuple) else [value]


def walk(node: Any, name: str = '') -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Yields a part of a config and all dicts in it, outer ones first, with their paths, `name.key.another.0`."""
    if isinstance(node, MutableMapping):
        yield name, node
        for key, value in node.items():
            yield from walk(value, f'{name}.{key}')
    elif isinstance(node, list | tuple):
        for i, value in enumerate(node):
            yield from walk(value, f'{name}.{i}')
