"""Imports of PyTorch, OpenMMLab and timm without what a prediction does not use: in `tokennorm predict` only.

Processor time on a busy machine, medians of 5 in turns: `predict` of one image 10.4 s with everything imported, 5.9
with modules that wait; the imports 7.3 and 2.9. `importlib.util.LazyLoader` takes 6.7: `from` and torch's and
mmengine's `inspect` load what it makes.

A module of `DEFERRED` waits: what is imported from it is a stand-in, which imports the real one when it is used after
the imports. `TOKENNORM_DEFER=0` turns this off. A workflow tries it with the newest packages each week.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from tokennorm.base.process import without_collection

SWITCH = 'TOKENNORM_DEFER'
DEFERRED = (  # beginnings of names
    *('huggingface_hub', 'imagecorruptions', 'imgaug', 'matplotlib', 'mmpretrain', 'rich', 'scipy', 'seaborn'),
    *('shapely', 'tifffile', 'torchgen', 'torchvision.datasets', 'torchvision.models', 'torch._dynamo'),
    *('torch.distributed.fsdp', 'torch.distributed.optim.functional_', 'torch.fx.experimental.symbolic_shapes'),
    # Registered names that no prediction builds: re-identification, runners of training and their wrappers of models.
    *('mmdet.models.reid', 'mmengine._strategy', 'mmengine.model.wrappers.fully', 'mmengine.runner._flexible_runner'),
    'mmengine.utils.progressbar_rich',
)


class _Waiting(ModuleType):
    """A module, or a name in it."""

    def _real(self) -> Any:
        _FINDER.stop()
        return resolve_name(self.__name__)

    def __getattr__(self, name: str) -> Any:
        if _FINDER not in sys.meta_path or name == '__version__':
            return getattr(self._real(), name)
        if name.startswith('__'):  # the import asks for these
            raise AttributeError(name)
        return _Waiting(f'{self.__name__}.{name}')

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real()(*args, **kwargs)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._real(),)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._real())


class _Finder(MetaPathFinder, Loader):
    """Finds `DEFERRED` that are installed, and makes modules that wait."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name.startswith(DEFERRED) else None
        if spec is not None:
            spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Waiting(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == 'torch._dynamo':  # timm and torchvision decorate functions with it
            vars(module)['disable'] = lambda function=None, *_, **__: function or (lambda decorated: decorated)

    def stop(self) -> None:
        """Has imports find everything as ever."""
        with suppress(ValueError):  # once
            sys.meta_path.remove(self)
        for name, module in [(name, one) for name, one in list(sys.modules.items()) if isinstance(one, _Waiting)]:
            sys.modules.pop(name, None)
            vars(module).pop('disable', None)


_FINDER = _Finder()
defers = False  # a library must not change the imports of its user


@contextmanager
def fast_imports() -> Iterator[None]:
    """Imports inside are without collections of garbage and, in a program that `defers`, without `DEFERRED`."""
    if defers and os.environ.get(SWITCH) != '0' and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    try:
        with without_collection():
            yield
    finally:
        _FINDER.stop()
