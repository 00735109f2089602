"""Child registries of mmengine's, one a kind, in the scope 'tokennorm'.

mmengine imports this module when a config of any scope names a type with the prefix `tokennorm.`, and the locations
when it looks the type up: no `custom_imports` needed.
"""

from mmengine import registry as host

from tokennorm.config_paths import support_scope

support_scope()

MODELS = host.Registry(
    'model',
    parent=host.MODELS,
    scope='tokennorm',
    locations=[
        'tokennorm.builder',
        'tokennorm.layers',
        'tokennorm.backbones',
        'tokennorm.necks',
        'tokennorm.data_preprocessors',
    ],
)
DATASETS = host.Registry(
    'dataset', parent=host.DATASETS, scope='tokennorm', locations=['tokennorm.research.robustness.class_folders']
)
HOOKS = host.Registry(
    'hook', parent=host.HOOKS, scope='tokennorm', locations=['tokennorm.engine.hooks', 'tokennorm.report.hook']
)
OPTIM_WRAPPER_CONSTRUCTORS = host.Registry(
    'optimizer wrapper constructor',
    parent=host.OPTIM_WRAPPER_CONSTRUCTORS,
    scope='tokennorm',
    locations=['tokennorm.optim'],
)
DATA_SAMPLERS = host.Registry(
    'data sampler',
    parent=host.DATA_SAMPLERS,
    scope='tokennorm',
    locations=['tokennorm.engine.resume.sampler'],
)
METRICS = host.Registry('metric', parent=host.METRICS, scope='tokennorm', locations=['tokennorm.engine.coco_metric'])
