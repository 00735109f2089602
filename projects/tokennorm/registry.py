"""Child registries of mmengine's registries, one per kind, in the scope 'tokennorm'.

mmengine imports this module when a config of any scope names a type with the prefix `tokennorm.`, and the locations
when it looks the type up. Configs need no `custom_imports`.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from mmengine import registry as upstream
from mmengine.config.utils import MODULE2PACKAGE

from tokennorm.compat import silence_missing_extras

# mmengine 0.10.12 finds the configs of packages by this table, for `_base_ = 'tokennorm::...'` and `get_config`. It
# lacks tokennorm, and names the original mmsegmentation.
MODULE2PACKAGE.update(tokennorm='tokennorm', mmseg='mmseg')
silence_missing_extras()


def type_name(cfg: Mapping[str, Any]) -> str:
    """Returns the name of a config's `type`, without its scope. Configs in pure Python have the class itself."""
    kind = cfg.get('type')
    return getattr(kind, '__name__', None) or str(kind).rpartition('.')[2]


def arguments_of(cfg: Mapping[str, Any], scope: str | None, *registries: Any) -> dict[str, Any]:
    """Returns the arguments of the class that a config's `type` names or is, with defaults or None; {} if unknown.

    They are those of its parent classes, too, which classes with `**kwargs` pass on. A name without a scope is of
    `scope`.
    """
    kind = cfg.get('type')
    if isinstance(kind, str):
        name = kind if '.' in kind or not scope else f'{scope}.{kind}'
        kind = next((found for one in registries if (found := one.get(name)) is not None), None)
    parents = reversed(kind.__mro__[:-1]) if inspect.isclass(kind) else ()
    found = [inspect.signature(one.__init__).parameters for one in parents if '__init__' in vars(one)]
    every = {key: one.default for parameters in found for key, one in parameters.items()}
    return {key: None if value is inspect.Parameter.empty else value for key, value in every.items()}


def _child(parent: Any, kind: str, *modules: str) -> Any:
    """A child of one of mmengine's registries, which finds its types in these modules of the package."""
    locations = [f'tokennorm.{module}' for module in modules]
    return upstream.Registry(kind, parent=parent, scope='tokennorm', locations=locations)


MODELS = _child(upstream.MODELS, 'model', 'registered', 'backbones', 'necks', 'data_preprocessors')
DATASETS = _child(upstream.DATASETS, 'dataset', 'datasets.coco.dataset')
HOOKS = _child(upstream.HOOKS, 'hook', 'engine.hooks', 'report.hook')
OPTIM_WRAPPERS = _child(upstream.OPTIM_WRAPPERS, 'optimizer wrapper', 'engine.mixed_precision')
OPTIM_WRAPPER_CONSTRUCTORS = _child(upstream.OPTIM_WRAPPER_CONSTRUCTORS, 'optimizer wrapper constructor', 'optim')
DATA_SAMPLERS = _child(upstream.DATA_SAMPLERS, 'data sampler', 'engine.resume.sampler', 'evaluation.batches')
METRICS = _child(upstream.METRICS, 'metric', 'evaluation.coco_metric')
