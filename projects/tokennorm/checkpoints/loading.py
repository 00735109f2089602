"""Loads checkpoints of any known layout completely or not at all, and reports on each parameter."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mmengine.logging import print_log
from torch import Tensor, nn

from tokennorm.checkpoints.layouts import Converted, Layout, StateDict, find_layout
from tokennorm.checkpoints.norms import add_to_layer_norm, from_published_dtn
from tokennorm.checkpoints.reading import CheckpointError, find_checkpoint, read_state_dict
from tokennorm.checkpoints.resizing import resize_tables
from tokennorm.messages import UserError, shorten

_BACKBONE = 'backbone.'


@dataclass
class LoadReport:
    """Report of a load: which keys were loaded, resized, missing or unexpected."""

    model: str  # the model's class
    source: str  # the file or URL
    layout: str  # whose names the file has
    loaded: list[str] = field(default_factory=list)  # from the file; names and the order of values may differ
    # position embeddings and bias tables of another size than in the file
    resized: list[str] = field(default_factory=list)
    # not in the file: initialized by the model or as the published models are
    missing: list[str] = field(default_factory=list)
    # of the file's own names, those that the model does not have, such as a classifier's head
    unexpected: list[str] = field(default_factory=list)
    note: str = ''  # a difference between model and file that the weights do not show

    def __str__(self) -> str:
        kinds = dict(resized='resized', missing='missing, newly initialized', unexpected='of the file not used')
        counts = [
            f'{len(keys)} {text}: {shorten(keys)}' for kind, text in kinds.items() if (keys := getattr(self, kind))
        ]
        lines = [
            f'{self.model} loaded from {self.source} (names of {self.layout})',
            f'{len(self.loaded)} loaded',
            *counts,
        ]
        return '\n  '.join([*lines, self.note] if self.note else lines)


def load_from_init_cfg(model: nn.Module, init_cfg: Mapping[str, Any]) -> LoadReport:
    """Calls `load_pretrained` with `dict(type='Pretrained', checkpoint=..., allow_missing=...)` and logs its report."""
    report = load_pretrained(model, *parse_init_cfg(init_cfg))
    print_log(str(report), logger='current')
    return report


def parse_init_cfg(init_cfg: Any) -> tuple[str, Sequence[str]]:
    """Returns the `checkpoint` and the `allow_missing` of a backbone's `init_cfg`."""
    known = isinstance(init_cfg, Mapping) and init_cfg.get('type') == 'Pretrained' and 'checkpoint' in init_cfg
    if not known or set(init_cfg) - {'type', 'checkpoint', 'allow_missing'}:
        raise UserError(
            f"init_cfg={init_cfg} must be dict(type='Pretrained', checkpoint=...) with a file, a URL or a work "
            'directory; allow_missing=[...] in it lists parameters, with * for anything, that may stay initialized'
        )
    allow_missing = init_cfg.get('allow_missing', ())
    return init_cfg['checkpoint'], [allow_missing] if isinstance(allow_missing, str) else allow_missing


def load_pretrained(model: nn.Module, checkpoint: str | Path, allow_missing: Sequence[str] = ()) -> LoadReport:
    """Fills every parameter and buffer of a backbone from a checkpoint, and returns a report.

    The backbone's part is taken from a detector's or classifier's checkpoint. Position embeddings and bias tables of
    another size are resized. Parameters that the source layout lacks are set to their published initial values:

    - output norms of a Swin detector, and ViT's relative positions: those of a detector, loaded from a classifier;
    - the bias of 0 of queries, keys and values, loaded from the DTN authors' ViT;
    - lambda and position weights of DTN with another `init` than 'paper', loaded from a network with LayerNorm.

    Args:
        model: A backbone of TokenNorm.
        checkpoint: As for `find_checkpoint`.
        allow_missing: Names, with `*` as wildcard, of parameters and buffers that keep their initialization if the
            file has none of their name and shape.

    Raises:
        CheckpointError: if other parameters of the model would stay initialized, or entries would be left over.
        UserError: for a name in `allow_missing` that no parameter has.
    """
    source = find_checkpoint(checkpoint)
    whole = read_state_dict(source)
    prefix = _BACKBONE if any(key.startswith(_BACKBONE) for key in whole) else ''
    state_dict = {key.removeprefix(prefix): value for key, value in whole.items() if key.startswith(prefix)}
    expected = model.state_dict()
    optional = matching(expected, allow_missing)
    layout = find_layout(model, state_dict)
    if layout is None:
        authors = ', '.join(each.author for each in model.layouts)
        raise CheckpointError(
            f'{source} has keys such as {shorten(list(state_dict), 3)}, which no layout of {type(model).__name__} has; '
            f'it loads the names of {authors}'
        )
    found, report = _convert(model, state_dict, layout, source)
    for key in optional & found.keys():
        if found[key].shape != expected[key].shape:
            found.leave_out(key)
    report.loaded = [key for key in expected if key in found and key not in {*report.resized, *found.added}]
    report.missing = [key for key in expected if key in found.added or key not in found]
    report.unexpected = [key for key in whole if not key.startswith(prefix) or key.removeprefix(prefix) in found.unused]
    hint = ''
    if any(key.endswith('_logit') for key in expected.keys() - found.keys() - optional):
        hint = "\nFor DTN from LayerNorm weights set token_norm_cfg=dict(type='DTN', init='layer_norm')."
    check_fit(model, found, source, optional, hint)
    model.load_state_dict(found, strict=not optional)
    return report


def convert_detector(
    model: nn.Module, state_dict: StateDict, source: str | Path, new_heads: bool = False
) -> tuple[StateDict, LoadReport]:
    """Converts the state dict of a whole detector, with a backbone of any known layout, to a model's keys.

    The keys of the backbone are converted unless they fit; all others are those of mmdet, which TokenNorm shares. The
    result is for `load_state_dict`, strict unless heads are new. Parameters that are missing, left over or of another
    shape raise `CheckpointError`. With `new_heads` those outside the backbone are newly initialized or left out: other
    classes, or another detector.
    """
    expected, found = model.state_dict(), Converted(state_dict)
    backbone = getattr(model, 'backbone', None)
    own = {key.removeprefix(_BACKBONE): value for key, value in found.items() if key.startswith(_BACKBONE)}
    report = LoadReport(type(model).__name__, str(source), 'TokenNorm')
    misfits = hasattr(backbone, 'layouts') and misfit(backbone.state_dict(), own)
    layout = find_layout(backbone, own) if misfits else None
    if layout is not None and not layout.author.endswith('TokenNorm'):
        converted, report = _convert(backbone, own, layout, str(source))
        report.model = type(model).__name__
        found = Converted({key: value for key, value in found.items() if not key.startswith(_BACKBONE)})
        found.update({_BACKBONE + key: value for key, value in converted.items()})
        found.unused = [_BACKBONE + key for key in converted.unused]
        found.added = [_BACKBONE + key for key in converted.added]
    if new_heads:
        add_to_layer_norm(found, model)
        fits = {key for key, value in expected.items() if key in found and found[key].shape == value.shape}
        report.missing = [key for key in expected if key not in fits and not key.startswith(_BACKBONE)]
        for key in [key for key in found if key not in fits and not key.startswith(_BACKBONE)]:
            found.leave_out(key)
    report.unexpected = found.unused
    report.missing += found.added
    report.loaded = [key for key in found if key not in found.added]
    check_fit(model, found, source, report.missing)
    return dict(found), report


def _convert(model: nn.Module, state_dict: StateDict, layout: Layout, source: str) -> tuple[Converted, LoadReport]:
    """Converts the state dict of a backbone, and reports what was resized and trained with another eps."""
    try:
        renamed = from_published_dtn(state_dict)
        converted = model.from_published(renamed)
        converted.unused += renamed.unused
        resized = resize_tables(converted, model)
    except ValueError as error:
        raise CheckpointError(f'{source}: {error}') from error
    add_to_layer_norm(converted, model)
    report = LoadReport(type(model).__name__, source, layout.author, resized=resized)
    others = {norm.eps for norm in model.modules() if isinstance(norm, nn.LayerNorm)} - {layout.eps}
    if layout.eps is not None and others:
        report.note = (
            f'trained with eps {layout.eps:g} in all norms, of which some have {", ".join(map(str, others))} here: '
            f"set model.backbone.norm_cfg=dict(type='LN', eps={layout.eps:g})"
        )
    return converted, report


def check_fit(
    model: nn.Module, state_dict: StateDict, source: str | Path, optional: Collection[str] = (), details: str = ''
) -> None:
    """Raises `CheckpointError` unless a state dict has the keys and shapes of a model.

    `optional` keys may be missing. The error names the `source`, and ends with the `details`.
    """
    expected = {key: value for key, value in model.state_dict().items() if key in state_dict or key not in optional}
    if problems := misfit(expected, state_dict):
        raise CheckpointError(
            f'{source} does not fit {type(model).__name__}:\n{problems}\n'
            'Use the config that the checkpoint was trained with, or one with the same norms, stem, arch, out_type and '
            f'pretrain_img_size.{details}'
        )


def misfit(expected: dict[str, Tensor], found: dict[str, Tensor]) -> str:
    """Returns one line each for missing, unexpected and mis-shaped keys of `found`; '' if everything fits."""
    reshaped = [
        f'{key} ({tuple(found[key].shape)} in the file, {tuple(value.shape)} in the model)'
        for key, value in expected.items()
        if key in found and found[key].shape != value.shape
    ]
    kinds = {
        'missing': sorted(set(expected) - set(found)),
        'unexpected': sorted(set(found) - set(expected)),
        'of another shape': reshaped,
    }
    return '\n'.join(f'  {len(keys)} {kind}: {shorten(keys, 4)}' for kind, keys in kinds.items() if keys)


def matching(names: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """The names that match one of the patterns. A pattern that matches none raises `UserError`."""
    found = {pattern: {name for name in names if fnmatchcase(name, pattern)} for pattern in patterns}
    for pattern, matched in found.items():
        if not matched:
            raise UserError(f'allow_missing: {pattern!r} matches no parameter')
    return set().union(*found.values())
