"""Registers the normalizers, and builds those and stems from config dicts.

Types are resolved with our registry's `get` and called: `build` would switch to the user's default scope, where a plain
name such as `DTN` does not exist.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from tokennorm.norms import DTN, LayerNorm
from tokennorm.registry import MODELS

MODELS.register_module(name=['LN', 'LayerNorm'], module=LayerNorm)
MODELS.register_module(module=DTN)


def resolve_type(cfg: Mapping[str, Any], role: str, base: type = nn.Module) -> tuple[type[nn.Module], dict[str, Any]]:
    """The class that `cfg['type']` names, and the other entries.

    Args:
        cfg: A config dict; its `type` is a class, a name in our scope or a name with a scope before it.
        role: The argument that it came from, for messages.
        base: Classes below this one are named as the choices.

    Raises:
        ValueError: where `type` is missing or nothing is registered under it.
    """
    kwargs = dict(cfg)
    kind = kwargs.pop('type', None)
    if isinstance(kind, type):
        return kind, kwargs
    cls = MODELS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        known = ', '.join(sorted(name for name, cls in MODELS.module_dict.items() if issubclass(cls, base)))
        raise ValueError(f'{role}: no type {kind!r} in scope tokennorm, which has {known}')
    return cls, kwargs


def build_norm(
    cfg: Mapping[str, Any], num_features: int, num_heads: int = 1, role: str = 'norm_cfg', **optional
) -> nn.LayerNorm:
    """A normalizer of `num_features` channels for blocks of `num_heads` heads.

    Args:
        cfg: Type and arguments, e.g. `dict(type='DTN', eps=1e-5)`.
        num_features: Channels.
        num_heads: Heads of the attention in the same block.
        role: The argument that `cfg` came from, for messages.
        optional: Defaults for arguments that only some normalizers have, such as `pool`; `cfg` goes before them.

    Raises:
        ValueError: for a type that is unknown, or that is none of LayerNorm's subclasses, such as the hosts' BN.
    """
    cls, kwargs = resolve_type(cfg, role, nn.LayerNorm)
    if not issubclass(cls, nn.LayerNorm):
        raise ValueError(f'{role}: {cls.__name__} does not normalize token grids (B, H, W, C)')
    accepted = inspect.signature(cls).parameters
    given = {name: value for name, value in dict(optional, num_heads=num_heads).items() if name in accepted}
    return cls(num_features, **{**given, **kwargs})


def build_stem(cfg: Mapping[str, Any] | None, **kwargs) -> nn.Module:
    """The patch embedding of `stem_cfg`; None is the plain one. `kwargs` are what the backbone decides."""
    cls, own = resolve_type(cfg or dict(type='PatchEmbed'), 'stem_cfg')
    return cls(**{**kwargs, **own})
