"""Child registries of mmengine's registries, one per kind, in the scope 'tokennorm'.

mmengine imports this module when a config of any scope names a type with the prefix `tokennorm.`, and the locations
when it looks the type up. Configs need no `custom_imports`.
"""

from collections.abc import Mapping
from typing import Any

try:
    from mmengine import registry as upstream
except ModuleNotFoundError:  # `replace_norms` and `replace_stem` need torch and einops only
    from tokennorm import plain_registry as upstream


def type_name(cfg: Mapping[str, Any]) -> str:
    """Returns the name of a config's `type`, without its scope. Configs in pure Python have the class itself."""
    kind = cfg.get('type')
    return getattr(kind, '__name__', None) or str(kind).rpartition('.')[2]


MODELS = upstream.Registry(
    'model',
    parent=upstream.MODELS,
    scope='tokennorm',
    locations=[
        'tokennorm.builder',
        'tokennorm.layers',
        'tokennorm.backbones',
        'tokennorm.necks',
        'tokennorm.data_preprocessors',
    ],
)
DATASETS = upstream.Registry(
    'dataset',
    parent=upstream.DATASETS,
    scope='tokennorm',
    locations=[
        'tokennorm.datasets.shard_dataset',
    ],
)
HOOKS = upstream.Registry(
    'hook',
    parent=upstream.HOOKS,
    scope='tokennorm',
    locations=['tokennorm.engine.hooks', 'tokennorm.report.hook', 'tokennorm.report.lambda_hook'],
)
OPTIM_WRAPPER_CONSTRUCTORS = upstream.Registry(
    'optimizer wrapper constructor',
    parent=upstream.OPTIM_WRAPPER_CONSTRUCTORS,
    scope='tokennorm',
    locations=['tokennorm.optim'],
)
DATA_SAMPLERS = upstream.Registry(
    'data sampler',
    parent=upstream.DATA_SAMPLERS,
    scope='tokennorm',
    locations=['tokennorm.engine.resume.sampler'],
)
METRICS = upstream.Registry(
    'metric', parent=upstream.METRICS, scope='tokennorm', locations=['tokennorm.engine.coco_metric']
)
