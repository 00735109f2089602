"""Resolves the types of config dicts, and builds normalizers.

A type is one of TokenNorm's, by a dictionary of names, or one that the user registered in TokenNorm's registry. It is
called here: the registry's `build` would switch to the user's default scope, which has no plain names such as `DTN`.
"""

import inspect
import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from tokennorm.base.messages import did_you_mean
from tokennorm.norms import NORMS

# Marker attributes: a class with `is_token_norm = True` can be used as `norm_cfg`, one with `is_patch_embed = True` as
# `stem_cfg`. A token normalization layer is called as `norm(x, valid=None)` on (B, H, W, C); norms of other libraries
# have no `valid`, and most of them take channels first. A patch embedding is built with `in_channels`, `embed_dims` and
# `patch_size`.
MARKERS = dict(is_token_norm='a token normalization layer', is_patch_embed='a patch embedding')


def resolve_type(
    cfg: Mapping[str, Any], role: str, known: Mapping[str, type] | None = None, marker: str | None = None
) -> tuple[type[nn.Module], dict[str, Any]]:
    """Returns the class that `cfg['type']` names, with or without a scope, or is, and the other entries.

    `role` is the argument that `cfg` came from, `known` the names of TokenNorm's own classes, and `marker` a key of
    `MARKERS`, or None for any class. Classes of another kind, and arguments that the class does not have, raise
    `ValueError`.
    """
    check_cfg(cfg, role)
    kwargs = dict(cfg)
    name = kwargs.pop('type', None)
    known = dict(known or {})
    cls = known.get(name.removeprefix('tokennorm.')) if isinstance(name, str) else name
    models = _registry()
    if cls is None and models is not None and isinstance(name, str):
        cls = models.get(name)
    if not isinstance(cls, type):
        known |= getattr(models, 'module_dict', {})
        names = sorted(key for key, cls in known.items() if marker is None or getattr(cls, marker, False))
        raise ValueError(
            f'{role}: no type {name!r} in scope tokennorm, which has {", ".join(names)}{did_you_mean(name, names)}'
        )
    if marker is not None and not getattr(cls, marker, False):
        raise ValueError(f'{role}: {cls.__name__} is not {MARKERS[marker]}: it has no {marker} = True')
    check_arguments(cls, kwargs, role)
    return cls, kwargs


def _registry() -> Any:
    """TokenNorm's registry of models; None without mmengine, which `replace_norms` and `replace_stem` do not need."""
    try:
        from tokennorm.registry import MODELS
    except ModuleNotFoundError as error:
        if error.name != 'mmengine':
            raise
        return None
    return MODELS


def check_cfg(cfg: Any, role: str) -> None:
    """Raises a ValueError unless `cfg`, the value of the argument `role`, is a dict."""
    if not isinstance(cfg, Mapping):
        raise ValueError(f"{role}={cfg!r} must be a dict, such as dict(type='...')")


def check_arguments(cls: type, kwargs: Mapping[str, Any], role: str) -> None:
    """Raises a ValueError, with the nearest name, for an argument that the constructor of `cls` does not have."""
    accepted = arguments_of(cls)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        return
    for name in kwargs:
        if name not in accepted:
            meant = did_you_mean(name, accepted) or ' (in a config with a base, _delete_=True drops those of the base)'
            raise ValueError(f'{role}: {cls.__name__} has no argument {name!r}{meant}; it has {", ".join(accepted)}')


def arguments_of(cls: type) -> dict[str, inspect.Parameter]:
    """The arguments of a constructor. TokenNorm's pass `**kwargs` on to their base class."""
    parameters = dict(inspect.signature(cls).parameters)
    if 'kwargs' in parameters and cls.__module__.startswith('tokennorm.'):
        del parameters['kwargs']
        parameters |= arguments_of(cls.__base__)  # type: ignore[arg-type]
    return parameters


def build_norm(
    cfg: Mapping[str, Any], num_features: int, num_heads: int = 1, role: str = 'norm_cfg', **optional: Any
) -> nn.Module:
    """Builds a normalizer of `num_features` channels for blocks of `num_heads` heads.

    `cfg` has its type and arguments, e.g. `dict(type='DTN', eps=1e-5)`. `optional` are defaults for arguments that only
    some normalizers have, such as `pool`. Types that do not take token grids, such as torch's own norms, and arguments
    that the type does not have, raise `ValueError`.
    """
    cls, kwargs = resolve_type(cfg, role, NORMS, 'is_token_norm')
    accepted = inspect.signature(cls).parameters
    eps = kwargs.get('eps', 0)
    if not isinstance(eps, int | float) or not 0 <= eps < math.inf:
        raise ValueError(f'{role}: eps={eps!r} must be a number of at least 0')
    given = {name: value for name, value in dict(optional, num_heads=num_heads).items() if name in accepted}
    return cls(num_features, **{**given, **kwargs})


def eps_of_replaced(token_norm_cfg: Any, norm_cfg: Mapping[str, Any], dims: int) -> dict[str, float]:
    """Returns the `eps` of `norm_cfg` for a DTN that may take over its weights (`init`), and nothing otherwise."""
    if not isinstance(token_norm_cfg, Mapping) or token_norm_cfg.get('init', 'paper') == 'paper':
        return {}
    eps = getattr(build_norm(norm_cfg, dims), 'eps', None)
    return {} if eps is None else dict(eps=eps)
