"""Child registries of mmengine's registries, one per kind, in the scope 'tokennorm'.

mmengine imports this module when a config of any scope names a type with the prefix `tokennorm.`, and the locations
when it looks the type up. Configs need no `custom_imports`.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from mmengine import registry as upstream

from tokennorm.base.type_name import type_name as type_name
from tokennorm.registry.compat import make_mmengine_find_configs

make_mmengine_find_configs()


def arguments_of(cfg: Mapping[str, Any], scope: str | None, *registries: Any) -> dict[str, Any]:
    """Returns the arguments of the class that a config's `type` names or is, with defaults or None; {} if unknown.

    They are those of its parent classes, too, which classes with `**kwargs` pass on. A name without a scope is of
    `scope`.
    """
    cls = cfg.get('type')
    if isinstance(cls, str):
        name = cls if '.' in cls or not scope else f'{scope}.{cls}'
        cls = next((known for registry in registries if (known := registry.get(name)) is not None), None)
    parents = [parent for parent in (cls.__mro__[-2::-1] if inspect.isclass(cls) else ()) if '__init__' in vars(parent)]
    parameters = [p for parent in parents for p in inspect.signature(parent.__init__).parameters.values()]
    return {p.name: None if p.default is inspect.Parameter.empty else p.default for p in parameters}


def _child(parent: Any, name: str, *modules: str) -> Any:
    """A child of one of mmengine's registries, which finds its types in these modules of the package."""
    locations = [f'tokennorm.{module}' for module in modules]
    return upstream.Registry(name, parent=parent, scope='tokennorm', locations=locations)


_OF_MODELS = ('registered', 'necks', 'data_preprocessors', 'masked_detectors')
MODELS = _child(upstream.MODELS, 'model', 'backbones', *(f'models.{name}' for name in _OF_MODELS))
TASK_UTILS = _child(upstream.TASK_UTILS, 'task util', 'models.overlaps')
DATASETS = _child(upstream.DATASETS, 'dataset', 'datasets.coco.dataset')
_HOOKS = ('checkpoint', 'cpu_speed', 'data_errors', 'non_finite', 'progress', 'summary', 'train_batches')
HOOKS = _child(upstream.HOOKS, 'hook', *(f'engine.hooks.{name}' for name in _HOOKS), 'report.hook')
OPTIM_WRAPPERS = _child(upstream.OPTIM_WRAPPERS, 'optimizer wrapper', 'engine.mixed_precision')
_CONSTRUCTORS = upstream.OPTIM_WRAPPER_CONSTRUCTORS
OPTIM_WRAPPER_CONSTRUCTORS = _child(_CONSTRUCTORS, 'optimizer wrapper constructor', 'models.layer_decay')
DATA_SAMPLERS = _child(upstream.DATA_SAMPLERS, 'data sampler', 'engine.resume.sampler', 'evaluation.batches')
METRICS = _child(upstream.METRICS, 'metric', 'evaluation.coco_metric')
