"""Names for the types of mmengine's pure Python configs, which are classes and functions.

Afterwards such a config is as any other: types compare with names, and the written config can be read again.
"""

import inspect
from collections.abc import Iterator
from typing import Any

from mmengine import registry
from mmengine.config import Config

from tokennorm.config.tree import walk


def name_types(cfg: Config) -> None:
    """Replaces every `type`, and every entry whose key ends in `_type`, that is a class or function by its name.

    Where a registry of the config's scope or mmengine has it, that is the registered name, otherwise the path for an
    import. A `default_scope` of None becomes the package of the model.
    """
    kind = cfg.model.get('type')
    package = str(getattr(kind, '__module__', kind)).partition('.')[0]
    if 'default_scope' in cfg and cfg.default_scope is None and inspect.isclass(kind):
        cfg.default_scope = package
    scope = cfg.get('default_scope')
    for _, part in (found for key in list(cfg) for found in walk(cfg[key], key)):
        for key, value in list(part.items()):
            if key.endswith('type') and (inspect.isclass(value) or inspect.isroutine(value)):
                part[key] = _name(value, scope)


def _name(kind: Any, scope: str | None) -> str:
    for known in _registries():
        if known.module_dict.get(kind.__name__) is kind and known.scope in ('mmengine', scope):
            return kind.__name__
        if known.module_dict.get(kind.__name__) is kind:
            return f'{known.scope}.{kind.__name__}'
    return f'{kind.__module__}.{kind.__qualname__}'


def _registries() -> Iterator[registry.Registry]:
    """Yields mmengine's registries and their children, those of mmengine first."""
    roots = [one for one in vars(registry).values() if isinstance(one, registry.Registry)]
    yield from roots
    for one in roots:
        yield from one.children.values()
