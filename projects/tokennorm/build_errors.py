"""Errors of parts of a config that cannot be built, with the class and its arguments."""

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mmengine.registry import Registry

from tokennorm.messages import UserError, did_you_mean

_BUILT = '_tokennorm_built'  # attribute of an error: registry and arguments of the innermost part that was being built


@contextmanager
def build_errors() -> Iterator[None]:
    """Ends the program with what is wrong, and in the arguments of which class, where a part of a config cannot be
    built. Other errors pass.

    Raises:
        UserError: for an error of a constructor, or of the search for its class.
    """
    try:
        with _noted_builds():
            yield
    except (ValueError, TypeError, KeyError, AssertionError) as error:
        if not hasattr(error, _BUILT):
            raise
        raise UserError(f'{_text(error, *getattr(error, _BUILT))}') from error


def _text(error: Exception, registry: Registry, cfg: Any) -> str:
    """Description of the problem."""
    if not isinstance(cfg, Mapping) or cfg.get('type') is None:
        return f'a {registry.name} without a type in the config: {dict(cfg or {})!r:.200}'
    kind = cfg['type']
    with registry.switch_scope_and_registry(cfg.get('_scope_')) as searched:
        cls = searched.get(kind) if isinstance(kind, str) else kind
        if cls is None:
            return f'type={kind!r}: there is no such {searched.name}{_did_you_mean(str(kind), searched)}'
    unknown = _unknown_arguments(cls, cfg) if isinstance(error, TypeError) else []
    if unknown:
        accepted = list(inspect.signature(cls).parameters)
        names = ', '.join(f'{name!r}{did_you_mean(name, accepted)}' for name in unknown)
        return f'{kind} has no argument {names}; it has {", ".join(accepted)}'
    text = str(error) or f'failed at `{traceback.extract_tb(error.__traceback__)[-1].line}`'
    return text if text.startswith(cls.__name__) else f'{kind}: {text}'


def _unknown_arguments(cls: Callable[..., Any], cfg: Mapping[str, Any]) -> list[str]:
    """The arguments that a constructor does not take; none where it takes any."""
    accepted = inspect.signature(cls).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        return []
    return [name for name in cfg if name not in accepted and name not in ('type', '_scope_')]


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


@contextmanager
def _noted_builds() -> Iterator[None]:
    """Inside, an error that passes `Registry.build` has the innermost registry and arguments in `_BUILT`.

    mmengine 0.10.12 has no hook for that, and its own messages name neither.
    """
    original = Registry.build

    def build(self: Registry, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, cfg, *args, **kwargs)
        except Exception as error:
            if not hasattr(error, _BUILT):
                defaults = kwargs.get('default_args') or (args[0] if args else None) or {}
                setattr(error, _BUILT, (self, {**defaults, **cfg} if isinstance(cfg, dict) else cfg))
            raise

    Registry.build = build
    try:
        yield
    finally:
        Registry.build = original
