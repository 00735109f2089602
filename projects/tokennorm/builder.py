"""Registers the normalizers, and builds those and stems from config dicts.

Types are resolved with our registry's `get` and called: `build` would switch to the user's default scope, where a plain
name such as `DTN` does not exist.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from tokennorm import norms
from tokennorm.registry import MODELS

MODELS.register_module(name=['LN', 'LayerNorm'], module=norms.LayerNorm)
MODELS.register_module(module=norms.DTN)
MODELS.register_module(name=['BN', 'BatchNorm'], module=norms.BatchNorm)
MODELS.register_module(name=['SyncBN', 'SyncBatchNorm'], module=norms.SyncBatchNorm)
MODELS.register_module(name=['IN', 'InstanceNorm'], module=norms.InstanceNorm)
MODELS.register_module(name=['GN', 'GroupNorm'], module=norms.GroupNorm)
MODELS.register_module(name=['SN', 'SwitchableNorm'], module=norms.SwitchableNorm)
MODELS.register_module(name=['DyT', 'DynamicTanh'], module=norms.DynamicTanh)
MODELS.register_module(module=norms.PowerNorm)
MODELS.register_module(module=norms.RMSNorm)
MODELS.register_module(module=norms.ScaleNorm)


def normalizes_token_grids(cls: type) -> bool:
    """Whether a class keeps the normalizers' contract, `norm(x, valid=None)` on (B, H, W, C).

    Torch's and the hosts' norms have no `valid`; most of them also take channels first.
    """
    return 'valid' in inspect.signature(getattr(cls, 'forward', cls)).parameters


def resolve_type(
    cfg: Mapping[str, Any], role: str, suits: Callable[[type], bool] = lambda cls: True
) -> tuple[type[nn.Module], dict[str, Any]]:
    """The class that `cfg['type']` names, and the other entries.

    Args:
        cfg: A config dict; its `type` is a class, a name in our scope or a name with a scope before it.
        role: The argument that it came from, for messages.
        suits: Whether a class is named as one of the choices.

    Raises:
        ValueError: where `type` is missing or nothing is registered under it.
    """
    kwargs = dict(cfg)
    kind = kwargs.pop('type', None)
    if isinstance(kind, type):
        return kind, kwargs
    cls = MODELS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        known = ', '.join(sorted(name for name, cls in MODELS.module_dict.items() if suits(cls)))
        raise ValueError(f'{role}: no type {kind!r} in scope tokennorm, which has {known}')
    return cls, kwargs


def build_norm(
    cfg: Mapping[str, Any], num_features: int, num_heads: int = 1, role: str = 'norm_cfg', **optional
) -> nn.Module:
    """A normalizer of `num_features` channels for blocks of `num_heads` heads.

    Args:
        cfg: Type and arguments, e.g. `dict(type='DTN', eps=1e-5)`.
        num_features: Channels.
        num_heads: Heads of the attention in the same block.
        role: The argument that `cfg` came from, for messages.
        optional: Defaults for arguments that only some normalizers have, such as `pool`; `cfg` goes before them.

    Raises:
        ValueError: for a type that is unknown, or that does not take token grids, such as torch's own.
    """
    cls, kwargs = resolve_type(cfg, role, normalizes_token_grids)
    if not normalizes_token_grids(cls):
        raise ValueError(f'{role}: {cls.__name__} does not normalize token grids: no forward(x, valid=None)')
    accepted = inspect.signature(cls).parameters
    given = {name: value for name, value in dict(optional, num_heads=num_heads).items() if name in accepted}
    return cls(num_features, **{**given, **kwargs})


def build_stem(cfg: Mapping[str, Any] | None, **kwargs) -> nn.Module:
    """The patch embedding of `stem_cfg`; None is the plain one. `kwargs` are what the backbone decides."""
    cls, own = resolve_type(cfg or dict(type='PatchEmbed'), 'stem_cfg')
    return cls(**{**kwargs, **own})
