"""Imports of packages that wait until one of their names is used.

OpenMMLab imports matplotlib, SciPy and imgaug, and torchvision PyTorch's compiler, for a few functions that most
runs never call. That is about half of the time of an import.
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

PACKAGES = ('imagecorruptions', 'imgaug', 'matplotlib', 'scipy', 'torch._dynamo')


class _Name:
    """A name that was imported from a waiting module: a class, a function or a module.

    To call it, to derive from it, to read an attribute and so on imports the module.
    """

    def __init__(self, module: '_Module', name: str) -> None:
        self._module, self._name = module, name

    def _get(self) -> Any:
        return self._module.get(self._name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._get()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._get()[key]

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._get())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._get(),)

    def __or__(self, other: Any) -> Any:
        return self._get() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._get()


class _Module(ModuleType):
    """Stands for a module that waits."""

    def __init__(self, name: str, waiting: '_Waiting') -> None:
        super().__init__(name)
        self._waiting = waiting

    def __getattr__(self, name: str) -> Any:
        if name == '__version__' or not self._waiting.package_of(self.__name__):
            return self.get(name)
        if name.startswith('__'):  # as the import itself asks for
            raise AttributeError(name)
        return _Name(self, name)

    def get(self, name: str) -> Any:
        """Imports the module, and returns what it calls so."""
        self._waiting.end(self.__name__)
        real = importlib.import_module(self.__name__)
        try:
            return getattr(real, name)
        except AttributeError:
            if name.startswith('__'):
                raise
        try:
            return importlib.import_module(f'{self.__name__}.{name}')
        except ModuleNotFoundError:
            raise AttributeError(f'module {self.__name__!r} has no attribute {name!r}') from None


class _Waiting(MetaPathFinder, Loader):
    """Finds modules of packages that wait."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = set(packages)

    def package_of(self, name: str) -> str | None:
        """The package of this module, if it waits."""
        return next((p for p in self.packages if name == p or name.startswith(f'{p}.')), None)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if self.package_of(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name, self)

    def exec_module(self, module: ModuleType) -> None:
        pass

    def end(self, name: str) -> None:
        """Lets imports of the package of this module find it."""
        if (package := self.package_of(name)) is None:
            return
        self.packages.discard(package)
        for key, module in list(sys.modules.items()):
            if isinstance(module, _Module) and (key == package or key.startswith(f'{package}.')):
                del sys.modules[key]
                above, _, last = key.rpartition('.')
                parent = sys.modules.get(above)
                if parent is not None and vars(parent).get(last) is module:
                    delattr(parent, last)


def _disable(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`torch.compiler.disable` that waits for the compiler, which is imported where a function is compiled."""
    if function is None:
        return lambda function: _disable(function, *args, **kwargs)
    disabled = None

    @wraps(function)
    def call(*inputs: Any, **named: Any) -> Any:
        nonlocal disabled
        if disabled is None and 'torch._dynamo' in sys.modules:
            disabled = importlib.import_module('torch').compiler.disable(function, *args, **kwargs)
        return (disabled or function)(*inputs, **named)

    return call


@contextmanager
def deferred_imports() -> Iterator[None]:
    """Imports inside of it leave out `PACKAGES`, each until a name of it is used.

    Afterwards an import finds them as ever. A package that is not installed is not found inside either.
    """
    new = [name for name in PACKAGES if name not in sys.modules and find_spec(name)]  # imports torch
    waiting = _Waiting(new)
    sys.meta_path.insert(0, waiting)
    compiler = importlib.import_module('torch').compiler
    disable = compiler.disable
    if 'torch._dynamo' in new:
        compiler.disable = _disable
    try:
        yield
    finally:
        compiler.disable = disable
        sys.meta_path.remove(waiting)
        for name in new:
            waiting.end(name)
