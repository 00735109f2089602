"""Walks through configs: datasets inside wrappers, steps of pipelines, evaluators, heads and limits of detections."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from tokennorm.registry import type_name


def is_classifier(cfg: Mapping[str, Any]) -> bool:
    """Returns whether a config is a classifier of mmpretrain."""
    return type_name(cfg.get('model') or {}) == 'ImageClassifier'


def model_of(cfg: Any) -> MutableMapping[str, Any]:
    """Returns the model of a config."""
    model = cfg.get('model')
    if not isinstance(model, MutableMapping) or not model:
        problem = f'model={model!r}, which is not a dict' if model else 'no model'
        raise ValueError(f'{cfg.filename} has {problem}: it is not a whole config')
    return model


def set_num_classes(model: Any, num_classes: int) -> None:
    """Sets the number of classes of every head that counts the classes of the data, in place."""
    for _, head in heads(model, 'model'):
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


def heads(node: Any, name: str) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Yields the parts of a model's config that have their own `num_classes`, and their names."""
    if isinstance(node, Mapping) and 'language_model' not in node:
        if isinstance(node.get('num_classes'), int) and 'semantic' not in name:
            yield name, node
        for key, value in node.items():
            if key != 'rpn_head':  # it has one class: object or background
                yield from heads(value, f'{name}.{key}')
    elif isinstance(node, list | tuple):
        for i, value in enumerate(node):
            yield from heads(value, f'{name}[{i}]')


def steps(cfg: Mapping[str, Any], split: str) -> Iterator[MutableMapping[str, Any]]:
    """The steps of a split's pipelines, those inside other steps and dataset wrappers included."""
    dataset = (cfg.get(f'{split}_dataloader') or {}).get('dataset') or {}
    while dataset:
        yield from inner_steps(dataset.get('pipeline') or [])
        inner = dataset.get('dataset') or (dataset.get('datasets') or [None])[0]
        dataset = inner or {}


def inner_steps(pipeline: Any) -> Iterator[MutableMapping[str, Any]]:
    """The steps of a pipeline, those inside other steps included."""
    for step in pipeline:
        if isinstance(step, list | tuple):
            yield from inner_steps(step)
        else:
            yield step
            yield from inner_steps(step.get('transforms') or [])


def inference_cfgs(node: MutableMapping[str, Any], name: str) -> Iterator[tuple[str, MutableMapping[str, Any]]]:
    """Yields `model.test_cfg` and its parts, for proposals and detections, with their names."""
    yield name, node
    for key, value in node.items():
        if isinstance(value, MutableMapping):
            yield from inference_cfgs(value, f'{name}.{key}')
