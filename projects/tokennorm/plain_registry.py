"""Replaces `mmengine.registry` where mmengine is not installed: names of norms and stems to their classes."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any


class Registry:
    """The part of mmengine's `Registry` that norms and stems use."""

    def __init__(self, name: str, **_: Any) -> None:
        self.name = name
        self.module_dict: dict[str, type] = {}

    def register_module(self, name: Sequence[str] | None = None, module: type | None = None) -> Callable:
        """As mmengine's: called with a class, or as a decorator."""

        def register(cls: type) -> type:
            self.module_dict.update(dict.fromkeys(name or [cls.__name__], cls))
            return cls

        return register if module is None else register(module)

    def get(self, key: str) -> type | None:
        """The class of a name, with or without the scope `tokennorm`; None if there is none."""
        import_module('tokennorm.layers')
        return self.module_dict.get(key.removeprefix('tokennorm.'))


MODELS = DATASETS = HOOKS = OPTIM_WRAPPERS = OPTIM_WRAPPER_CONSTRUCTORS = DATA_SAMPLERS = METRICS = None
