"""Fast imports of PyTorch, OpenMMLab and timm: without the packages that a prediction does not use."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from tokennorm.base.process import without_collection

DEFERRED = (  # beginnings of names
    *(
        'huggingface_hub',
        'imagecorruptions',
        'imgaug',
        'matplotlib',
        'mmpretrain',
        'rich',
        'scipy',
        'seaborn',
        'shapely',
    ),
    *('tifffile', 'torchgen', 'torchvision.datasets', 'torchvision.models', 'torch._dynamo', 'torch.distributed.fsdp'),
    *('torch.distributed.optim.functional_', 'torch.fx.experimental.symbolic_shapes'),
    # Registered names that no prediction builds: re-identification, runners of training and their wrappers of models.
    *('mmdet.models.reid', 'mmengine._strategy', 'mmengine.model.wrappers.fully', 'mmengine.runner._flexible_runner'),
    'mmengine.utils.progressbar_rich',
)


_own: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)['__dict__'].__get__


class _Waiting(ModuleType):
    """A module, or a name in it, until it is used: then the module is imported."""

    def _real(self) -> Any:
        _FINDER.stop()
        return _resolve(self.__name__)

    def __getattr__(self, name: str) -> Any:
        if _FINDER not in sys.meta_path or name == '__version__':
            return getattr(self._real(), name)
        if name.startswith('__'):  # the import asks for these
            raise AttributeError(name)
        return _Waiting(f'{self.__name__}.{name}')

    @property
    def __dict__(self) -> Any:  # type: ignore[override]  # `models.__dict__[name]`, vars() and dir()
        waits = _FINDER in sys.meta_path or self is sys.modules.get(self.__name__)  # the import fills it
        return _own(self) if waits else vars(self._real())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real()(*args, **kwargs)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._real(),)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._real())

    def __subclasscheck__(self, value: Any) -> bool:
        return issubclass(value, self._real())

    def __or__(self, other: Any) -> Any:
        return self._real() | other

    __ror__ = __or__  # of types, in annotations

    def __reduce__(self) -> tuple[Any, ...]:
        return resolve_name, (self.__name__,)


@cache
def _resolve(path: str) -> Any:
    """Imports what waits, and replaces the names of what is imported now in all modules: `except` takes classes."""
    real = resolve_name(path)
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    for user, name, value in [(module, *pair) for module in modules for pair in vars(module).items()]:
        if type(value) is _Waiting and value.__spec__ is None:  # not a module
            above, _, last = value.__name__.rpartition('.')
            setattr(user, name, getattr(sys.modules.get(above), last, value))
    return real


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
            _own(module)['disable'] = lambda function=None, *_, **__: function or (lambda decorated: decorated)

    def stop(self) -> None:
        """Has imports find everything as ever."""
        with suppress(ValueError):  # once
            sys.meta_path.remove(self)
        for name, module in [(name, one) for name, one in list(sys.modules.items()) if isinstance(one, _Waiting)]:
            sys.modules.pop(name, None)
            _own(module).pop('disable', None)


_FINDER = _Finder()
defers = False  # a library must not change the imports of its user


@contextmanager
def fast_imports() -> Iterator[None]:
    """Imports inside are without collections of garbage and, in a program that `defers`, without `DEFERRED`."""
    if defers and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    try:
        with without_collection():
            yield
    finally:
        _FINDER.stop()
