"""Child registries of mmengine's, one a kind, in the scope 'tokennorm'.

mmengine imports this module when a config of any scope names a type with the prefix `tokennorm.`, and the locations
when it looks the type up: no `custom_imports` needed.
"""

from importlib.util import find_spec

from mmengine import registry as host

_FOR_MMDET = ['tokennorm.data_preprocessors'] if find_spec('mmdet') else []

MODELS = host.Registry(
    'model',
    parent=host.MODELS,
    scope='tokennorm',
    locations=['tokennorm.builder', 'tokennorm.stems', 'tokennorm.backbones', *_FOR_MMDET],
)
HOOKS = host.Registry('hook', parent=host.HOOKS, scope='tokennorm', locations=['tokennorm.hooks'])
