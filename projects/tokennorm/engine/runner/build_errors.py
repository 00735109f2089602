"""Errors of a config, told without a traceback: those of what mmengine builds from it."""

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mmengine.registry import Registry
from mmengine.registry.build_functions import build_from_cfg

from tokennorm.messages import did_you_mean


@contextmanager
def build_errors() -> Iterator[None]:
    """Ends the program with what is wrong, and in the arguments of which class, where a part of a config cannot be
    built. Errors from elsewhere go through as they are.

    Raises:
        SystemExit: for an error that a constructor, or the search for its class, has raised.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError, AssertionError) as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        building = [frame for frame in frames if frame.f_code is build_from_cfg.__code__]
        if not building:
            raise
        raise SystemExit(f'error: {_text(error, building[-1], is_call=building[-1] is frames[-1])}') from None


def _text(error: Exception, frame: FrameType, is_call: bool) -> str:
    """What is wrong, from an error and the innermost frame of `build_from_cfg` that it has passed.

    Args:
        error: The error.
        frame: That frame.
        is_call: The error was raised there, and not inside of the constructor: its arguments do not fit.
    """
    variables = frame.f_locals
    registry = variables['registry']
    kind = variables.get('obj_type', (variables['cfg'] or {}).get('type'))
    if 'obj_cls' not in variables or variables['obj_cls'] is None:
        if kind is None:
            return f'a {registry.name} without a type in the config: {dict(variables["cfg"])!r:.200}'
        return f'type={kind!r}: there is no such {registry.name}{_did_you_mean(str(kind), registry)}'
    cls = variables['obj_cls']
    text = str(error) or f'failed at `{traceback.extract_tb(error.__traceback__)[-1].line}`'
    if is_call and isinstance(error, TypeError):
        accepted = list(inspect.signature(cls).parameters)
        unknown = [name for name in variables['args'] if name not in accepted]
        if unknown:
            names = ', '.join(f'{name!r}{did_you_mean(name, accepted)}' for name in unknown)
            return f'{kind} has no argument {names}; it has {", ".join(accepted)}'
    return text if text.startswith(cls.__name__) else f'{kind}: {text}'


def _did_you_mean(kind: str, registry: Registry) -> str:
    """The nearest name in the registry that was searched, or the same name in that of another scope."""
    children = registry.children | (registry.parent.children if registry.parent else {})
    scope, _, name = kind.rpartition('.')
    if scope:
        return did_you_mean(name, sorted(children[scope].module_dict) if scope in children else [])
    elsewhere = [scope for scope, child in children.items() if kind in child.module_dict]
    if elsewhere:
        return f' (did you mean {elsewhere[0]}.{kind}?)'
    searched = [registry, registry.parent] if registry.parent else [registry]
    return did_you_mean(kind, sorted({name for one in searched for name in one.module_dict}))
