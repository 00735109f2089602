"""What the installed mmcv asks of its compiled module, what of it is here, and which operators a config's classes use.

Everything is read from sources: nothing is built, and no weights are needed.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from . import ext


def names_by_module() -> dict[str, list[str]]:
    """Returns per module of `mmcv.ops`, such as `roi_align`, the names that it takes from mmcv's compiled module."""
    import mmcv

    found = {}
    for file in sorted((Path(mmcv.__file__).parent / 'ops').glob('*.py')):
        for node in ast.walk(ast.parse(file.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Call) and getattr(node.func, 'attr', None) == 'load_ext':
                found[file.stem] = sorted(set(ast.literal_eval(node.args[1])))
    return found


def missing() -> dict[str, list[str]]:
    """Returns per module of `mmcv.ops` the names that are not implemented."""
    here = set(ext.__all__)
    left = {module: [name for name in names if name not in here] for module, names in names_by_module().items()}
    return {module: names for module, names in left.items() if names}


def types(config) -> Iterator[str | type]:
    """Yields all values of `type` in dictionaries and lists."""
    if isinstance(config, dict):
        if isinstance(config.get('type'), str) or callable(config.get('type')):
            yield config['type']
        config = list(config.values())
    if isinstance(config, (list, tuple)):
        for value in config:
            yield from types(value)


def modules_used(kind: str | type) -> set[str]:
    """Returns the modules of `mmcv.ops` that a type of a config uses: its own, or those that its sources name.

    Types are looked up in the default scope, as the runner does. An unknown type uses none. Classes and functions of
    the same package that the sources name are followed.
    """
    target = getattr(import_module('mmcv.ops'), kind, None) or _registered(kind) if isinstance(kind, str) else kind
    used: set[str] = set()
    if target is not None:
        _follow(target, (target.__module__ or '').partition('.')[0], used, set())
    return used


def _registered(kind: str):
    from mmengine.registry import MODELS, TASK_UTILS

    for registry in (MODELS, TASK_UTILS):
        with registry.switch_scope_and_registry(None) as scoped:  # None: the default scope
            found = scoped.get(kind)
        if found is not None:
            return found
    return None


def _follow(target, package: str, used: set[str], seen: set) -> None:
    for part in inspect.getmro(target) if inspect.isclass(target) else [target]:
        module = getattr(part, '__module__', None) or ''
        if module.startswith('mmcv.ops.'):
            used.add(module.removeprefix('mmcv.ops.'))
        elif module.partition('.')[0] in {package, 'mmdet'} and part not in seen:
            seen.add(part)
            for name in _mentioned(part):
                found = vars(sys.modules[module]).get(name)
                found = getattr(found, '__self__', found)  # the class of `Function.apply`
                if inspect.isclass(found) or inspect.isfunction(found):
                    _follow(found, package, used, seen)


def _mentioned(target) -> set[str]:
    """Returns the names in the source of a class or function."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(target)))
    except (OSError, TypeError, SyntaxError):
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def of_config(config) -> dict[str, list[str]]:
    """Returns per module of `mmcv.ops` that a config uses the types that use it."""
    found: dict[str, list[str]] = {}
    names = set(names_by_module())
    for kind in dict.fromkeys(types(config._cfg_dict)):
        for module in {compiled for used in modules_used(kind) for compiled in _compiled(used, names, set())}:
            found.setdefault(module, []).append(kind if isinstance(kind, str) else kind.__name__)
    return dict(sorted(found.items()))


def _compiled(module: str, names: set[str], seen: set[str]) -> set[str]:
    """Returns the module itself if it takes names from the compiled one, else those that it imports and that do."""
    if module in names or module in seen:
        return {module} & names
    import mmcv

    seen.add(module)
    file, found = Path(mmcv.__file__).parent / 'ops' / f'{module}.py', set()
    for node in ast.walk(ast.parse(file.read_text(encoding='utf-8'))) if file.exists() else ():
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for other in [node.module] if node.module else [alias.name for alias in node.names]:
                found |= _compiled(other, names, seen)
    return found
