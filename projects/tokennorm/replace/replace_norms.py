"""Replaces LayerNorms of third-party models by token normalization layers."""

import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import torch
from torch import nn

from tokennorm.base.messages import shorten
from tokennorm.layers.building import build_norm
from tokennorm.replace.grid_norm_adapter import Grid, GridNormAdapter, affine_of, shape_of
from tokennorm.replace.grids import GridRecord

WITH_SHAPE = (nn.LayerNorm, nn.BatchNorm1d)  # as `shape_of` takes

Value = TypeVar('Value')
Patterns = str | Sequence[str]
ATTENTION_NAMES = ('attn', 'attention', 'msa', 'token_mixer', 'xca', 'factoratt')
PREFIX_COUNTS = ('num_prefix_tokens', 'num_extra_tokens')  # in timm and in mmpretrain
PREFIX_TOKENS = ('cls_token', 'dist_token')


def replace_norms(
    model: nn.Module,
    token_norm_cfg: Mapping[str, Any],
    include: Patterns | None = None,
    exclude: Patterns = (),
    num_heads: int | Mapping[str, int] | None = None,
    grid: Grid | Mapping[str, Grid] = None,
    num_prefix_tokens: int | None = None,
) -> list[str]:
    """Replaces LayerNorms of a model by token normalization layers. It changes the model in place.

    By default these are the norms inside the blocks: every LayerNorm with an attention in the same module. The norms in
    the stem, inside an attention, between stages and at the end stay. Weight and bias are kept, and eps too unless
    `token_norm_cfg` has one, so that with `DTN(init='layer_norm')` the model keeps its outputs.

    The new layer of `blocks.0.norm1` is then `blocks.0.norm1.norm`. So load LayerNorm checkpoints before.

    Args:
        model: Any model whose tokens are (B, T, C), (B, H, W, C), (B, C, H, W) in timm's LayerNorm2d, or (B * T, C) in
            a BatchNorm1d.
        token_norm_cfg: Type and arguments of a TokenNorm normalizer, e.g. `dict(type='DTN')`.
        include: Names to replace instead of the default, with `*` as wildcard: 'blocks.*.norm1'. Only `include` reaches
            the BatchNorm1d of tokens too: 'stages.*.bn' in timm's LeViT, which has no LayerNorm.
        exclude: Names that stay, with the same wildcard, e.g. 'blocks.1[01].*' for the last blocks, in which the paper
            has LayerNorm.
        num_heads: Heads of the new layers, one number or a dict by such patterns. None, or no match, takes the heads of
            the attention in the same module, or around the norm.
        grid: Layout of (B, T, C): (H, W) or 'sequence', one value or a dict by such patterns. None, or no match, takes
            the grid from the forward pass: from the shapes in convolutions, unfoldings, poolings and the arguments of
            the blocks. A sequence that matches none of them is taken for a square. With 'sequence', tokens that an
            `attention_mask`, `decoder_attention_mask`, `src_key_padding_mask` or `tgt_key_padding_mask`, (B, T), hides
            do not count in statistics across tokens; the innermost module that is called with one has the mask of its
            norms.
        num_prefix_tokens: Class and other tokens before the grid, which are normalized as by LayerNorm. None asks the
            model; a sequence may then also be without them.

    Returns:
        The names of the replaced norms.

    Raises:
        ValueError: if there is no norm to replace, if the heads of a norm are unknown or do not divide its channels, or
            if the model reorders its tokens or leaves some out, as Hiera, NesT and MAE. The model is then unchanged. A
            forward pass raises if a grid is unknown.
    """
    for module in model.modules():
        if name := {'Unroll': 'Hiera', 'Nest': 'NesT'}.get(type(module).__name__):
            raise ValueError(
                f'replace_norms: {name} reorders its tokens by attention window, so that their grid is lost. '
                'SAM2-Hiera keeps it: timm has sam2_hiera_tiny'
            )
        if type(module).__name__ in ('NaFlexVit', 'PatchDropout') or hasattr(module, 'random_masking'):  # timm's, MAE's
            raise ValueError(
                f'replace_norms: {type(module).__name__} packs or leaves out patches, so that their grid is lost; '
                'use a ViT of another kind, without patch_drop_rate'
            )
    include, exclude = ([p] if isinstance(p, str) else p for p in (include, exclude))
    replaceable = nn.LayerNorm if include is None else WITH_SHAPE
    names = [
        name
        for name, module in model.named_modules()
        if isinstance(module, replaceable)
        and not getattr(module, 'is_token_norm', False)
        and (_sibling_attention(model, name) if include is None else _matches(name, include))
        and not _matches(name, exclude)
    ]
    if not names:
        raise ValueError(_why_none(model, include, exclude))
    norms = [name for name, module in model.named_modules() if isinstance(module, (*WITH_SHAPE, GridNormAdapter))]
    for pattern in exclude:
        if not any(fnmatchcase(name, pattern) for name in norms):
            text = f'replace_norms: exclude={pattern!r} matches no norm; * is any text, as in blocks.1.*'
            warnings.warn(text, stacklevel=2)
    records = (module.record for module in model.modules() if isinstance(module, GridNormAdapter))
    record = next(records, None) or GridRecord()  # of earlier calls: norms tell one another the grid
    counts = {_count_prefix_tokens(model), 0} if num_prefix_tokens is None else {num_prefix_tokens}
    prefixes = sorted(counts, reverse=True)  # a sequence may also be without them
    replacements = {}
    for name in names:
        old, heads = model.get_submodule(name), _heads(model, name, num_heads)
        norm = _norm_like(model, name, token_norm_cfg, heads)
        replacements[name] = GridNormAdapter(norm, name, old, heads, _of(name, grid), prefixes, record)
    for name, replacement in replacements.items():
        model.set_submodule(name, replacement)
    record.watch(model, names)
    return names


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _of(name: str, value: Value | Mapping[str, Value | None] | None) -> Value | None:
    """The value itself, or the value of the first pattern that matches the name."""
    if not isinstance(value, Mapping):
        return value
    return next((of_pattern for pattern, of_pattern in value.items() if fnmatchcase(name, pattern)), None)


def _is_attention(name: str) -> bool:
    """Returns whether a module of this name is an attention, and not a classifier's attention pooling or a norm."""
    last = name.rpartition('.')[2].lower()
    return any(word in last for word in ATTENTION_NAMES) and not last.endswith('pool') and 'norm' not in last


def _heads_inside(module: nn.Module) -> int | None:
    heads = (getattr(part, 'num_heads', None) for part in module.modules())
    return next((number for number in heads if isinstance(number, int)), None)


def _sibling_attention(model: nn.Module, name: str) -> nn.Module | None:
    """The attention that a norm belongs to: the sibling right after it, else the last before it, else the first.

    None for norms inside an attention, and for the norm of a projection between two streams of tokens (TNT).
    """
    parent, _, last = name.rpartition('.')
    children = dict(model.get_submodule(parent).named_children())
    inside = _is_attention(parent) and 'mlp' not in children  # a whole block of MaxViT is named attn_block
    if inside or last.endswith('proj'):
        return None
    at = list(children).index(last)
    attentions = {
        i: module
        for i, (child, module) in enumerate(children.items())
        if _is_attention(child) and _heads_inside(module) and not isinstance(module, nn.ModuleList)
    }
    nearest = [at + 1] if at + 1 in attentions else [i for i in reversed(attentions) if i < at] or [*attentions]
    return attentions[nearest[0]] if nearest else None


def _heads(model: nn.Module, name: str, num_heads: int | Mapping[str, int] | None) -> int:
    given = _of(name, num_heads)
    parent = name.rpartition('.')[0]
    attention = model.get_submodule(parent) if _is_attention(parent) else _sibling_attention(model, name)
    if given is None and attention is None:
        raise ValueError(f'replace_norms: num_heads={num_heads} must set the heads of {name}, which has no attention')
    return _heads_inside(attention) if given is None else given  # type: ignore[return-value]


def _norm_like(model: nn.Module, name: str, cfg: Mapping[str, Any], num_heads: int) -> nn.Module:
    """Builds a normalizer with the weight, bias, eps, device, dtype and mode of a norm."""
    old = model.get_submodule(name)
    if not isinstance(getattr(old, 'act', None), nn.Identity | None):  # timm's LayerNormAct
        raise ValueError(f'replace_norms: {name} is a {type(old).__name__} with an activation, which would be lost')
    if len(shape_of(old)) != 1:
        raise ValueError(f'replace_norms: {name} normalizes {shape_of(old)}, not only channels')
    try:
        norm = build_norm(cfg, shape_of(old)[0], num_heads, 'token_norm_cfg', eps=old.eps)
    except ValueError as error:
        raise ValueError(f'replace_norms: {name}: {error}') from error
    with torch.no_grad():
        for of_old, of_new in zip(affine_of(old), affine_of(norm), strict=True):
            if of_old is not None and of_new is not None and of_old.shape == of_new.shape:
                of_new.copy_(of_old).requires_grad_(of_old.requires_grad)
    like = old.weight if old.weight is not None else next(model.parameters(), None)
    if like is not None:
        norm.to(like)
    return norm.train(old.training)


def _count_prefix_tokens(model: nn.Module) -> int:
    """The number that the model, or the first module that has one, states; else its class and distillation tokens."""
    for module in model.modules():
        for attribute in PREFIX_COUNTS:
            if isinstance(getattr(module, attribute, None), int):
                return getattr(module, attribute)
    names = [name.rpartition('.')[2] for name, _ in model.named_parameters()]
    return sum(any(name.startswith(token) for name in names) for token in PREFIX_TOKENS)  # CoaT: cls_token1, 2, 3, 4


def _why_none(model: nn.Module, include: Sequence[str] | None, exclude: Sequence[str]) -> str:
    norms = [name for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)]
    types = sorted({type(m).__name__ for m in model.modules() if 'norm' in type(m).__name__.lower()})
    where = 'an attention in the same module' if include is None else f'a name that matches {", ".join(include)}'
    without = f', without {", ".join(exclude)}' if exclude else ''
    hint = '. To replace some of these, name them in include, with * as wildcard' if norms and include is None else ''
    return (
        f'replace_norms: {type(model).__name__} has no LayerNorm with {where}{without}. Its norms are '
        f'{", ".join(types) or "none"}; its LayerNorms {shorten(norms) or "none"}{hint}'
    )
