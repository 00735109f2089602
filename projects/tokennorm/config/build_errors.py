"""Errors of parts of a config that cannot be built, with the class and its arguments."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.registry import OPTIMIZERS, Registry

from tokennorm.base.messages import UserError, did_you_mean
from tokennorm.layers.building import check_arguments


@contextmanager
def build_errors(whole: str = '') -> Iterator[None]:
    """Turns errors of parts of a config that cannot be built into a `UserError` with the class.

    Others pass, or with the name of a `whole` that is built by mmengine are errors of this whole.
    """
    try:
        yield
    except UserError:
        raise
    except (ValueError, TypeError, LookupError, AssertionError, AttributeError, RuntimeError, ImportError) as error:
        if isinstance(error, ImportError) and error.name:  # not raised by hand: a package of the environment
            raise
        if (build := _innermost_build(error)) is None and not whole:
            raise
        if build is None:
            raise UserError(f'{whole}: {type(error).__name__}: {" ".join(str(error).split())}') from error
        raise UserError(_text(error, *build)) from error


def _innermost_build(error: Exception) -> tuple[Registry, Any] | None:
    """The registry and the arguments of the last `Registry.build` that an error has left; mmengine names neither."""
    left = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    frames = [frame for frame in left if frame.f_code is Registry.build.__code__]
    if not frames:  # mmengine 0.10.12 looks at the class of an optimizer before it is built
        of_optimizer = [frame for frame in left if frame.f_code is DefaultOptimWrapperConstructor.__call__.__code__]
        return (OPTIMIZERS, of_optimizer[-1].f_locals['self'].optimizer_cfg) if of_optimizer else None
    call = frames[-1].f_locals
    defaults = call['kwargs'].get('default_args') or next(iter(call['args']), None) or {}
    return call['self'], {**defaults, **call['cfg']} if isinstance(call['cfg'], dict) else call['cfg']


def _text(error: Exception, registry: Registry, cfg: Any) -> str:
    """Returns the message for an error that was raised while `cfg` was built."""
    if not isinstance(cfg, Mapping) or cfg.get('type') is None:
        return f'a {registry.name} without a type in the config: {dict(cfg or {})!r:.200}'
    name = cfg['type']
    with registry.switch_scope_and_registry(cfg.get('_scope_')) as searched:
        cls = searched.get(name) if isinstance(name, str) else name
        if cls is None:
            return f'type={name!r}: there is no such {searched.name}{_did_you_mean(str(name), searched)}'
    if isinstance(error, TypeError):
        try:
            check_arguments(
                cls, {key: value for key, value in cfg.items() if key not in ('type', '_scope_')}, str(name)
            )
        except ValueError as unknown:
            return str(unknown)
    if 'need at least one array to concatenate' in str(error) and 'ann_file' in cfg:  # mmengine's, of no image
        return f'{name}: no image of {cfg["ann_file"]} is left by filter_cfg={cfg.get("filter_cfg")} and indices'
    text = str(error) or f'failed at `{traceback.extract_tb(error.__traceback__)[-1].line}`'
    return text if text.startswith(cls.__name__) else f'{name}: {text}'


def _did_you_mean(wanted: str, registry: Registry) -> str:
    """The same name in another scope, or the nearest name in any."""
    root = registry.parent or registry
    names = [f'{scope}.{name}' for scope, child in root.children.items() for name in child.module_dict]
    same = [name for name in names if name.rpartition('.')[2] == wanted]
    known = [*registry.module_dict, *root.module_dict, *names]
    return f' (did you mean {same[0]}?)' if same else did_you_mean(wanted, known)
