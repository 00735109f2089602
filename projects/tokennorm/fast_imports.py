"""Fast imports of PyTorch, OpenMMLab and timm: without the packages that a prediction does not use."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

DEFERRED = (  # beginnings of names
    *('imagecorruptions', 'imgaug', 'matplotlib', 'scipy', 'seaborn'),
    *('torch._dynamo', 'torch.distributed.optim.functional_', 'torch.fx.experimental.symbolic_shapes'),
)


class _Waiting(ModuleType):
    """A module, or a name in it, until it is used: then the module is imported."""

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

    def __subclasscheck__(self, value: Any) -> bool:
        return issubclass(value, self._real())

    def __or__(self, other: Any) -> Any:
        return self._real() | other

    __ror__ = __or__  # of types, in annotations

    def __reduce__(self) -> tuple[Any, ...]:
        return resolve_name, (self.__name__,)


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
            above, _, last = name.rpartition('.')
            vars(sys.modules.get(above, module)).pop(last, None)


_FINDER = _Finder()
is_program = False  # a library must not change the imports of its user


@contextmanager
def fast_imports() -> Iterator[None]:
    """Imports inside are without collections of garbage and, in a program, without `DEFERRED`."""
    collects = gc.isenabled()
    gc.disable()
    if is_program and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    try:
        yield
    finally:
        _FINDER.stop()
        if is_program:
            gc.freeze()  # modules stay: no collection looks at them
        if collects:
            gc.enable()
