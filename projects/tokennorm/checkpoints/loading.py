"""Loads checkpoints of any known layout completely or not at all, and reports on each parameter."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mmengine.logging import print_log
from torch import Tensor, nn

from tokennorm.base.messages import UserError, shorten
from tokennorm.checkpoints.layouts import Converted, Layout, StateDict, find_layout
from tokennorm.checkpoints.norms import add_to_layer_norm, from_published_dtn
from tokennorm.checkpoints.resizing import resize_tables
from tokennorm.checkpoints.safe_reading import (
    CheckpointError,
    describe_entries,
    find_checkpoint,
    read_checkpoint,
    state_dict_in,
)

_BACKBONE = 'backbone.'
_KNOWN = {'type', 'checkpoint', 'allow_missing', 'prefix', 'map_location'}  # files are read to the CPU, whatever it is


@dataclass
class LoadReport:
    """Report of a load: which keys were loaded, resized, missing or unexpected."""

    model: str  # the model's class
    source: str  # the file or URL
    layout: str  # whose names the file has
    loaded: list[str] = field(default_factory=list)  # from the file; names and the order of values may differ
    resized: list[str] = field(default_factory=list)  # position embeddings and bias tables of another size in the file
    missing: list[str] = field(default_factory=list)  # not in the file: initialized as new or as published models
    unexpected: list[str] = field(default_factory=list)  # names in the file that the model lacks, such as a head
    note: str = ''  # a difference between model and file that the weights do not show

    def __str__(self) -> str:
        lines = [f'{self.model} loaded from {self.source} (names of {self.layout})', f'{len(self.loaded)} loaded']
        others = dict(resized='resized', missing='missing, newly initialized', unexpected='of the file not used')
        for field_name, text in others.items():
            if keys := getattr(self, field_name):
                lines.append(f'{len(keys)} {text}: {shorten(keys)}')
        return '\n  '.join([*lines, self.note] if self.note else lines)


def load_from_init_cfg(model: nn.Module, init_cfg: Any) -> None:
    """Calls `load_pretrained` with `dict(type='Pretrained', checkpoint=..., allow_missing=...)` and logs its report."""
    known = isinstance(init_cfg, Mapping) and init_cfg.get('type') == 'Pretrained' and 'checkpoint' in init_cfg
    if not known or set(init_cfg) - _KNOWN or init_cfg.get('prefix') not in (None, 'backbone', _BACKBONE):
        raise UserError(
            f"init_cfg={init_cfg} must be dict(type='Pretrained', checkpoint=...) with a file, a URL or a work "
            'directory; allow_missing=[...] in it lists parameters, with * for anything, that may stay initialized. '
            "A detector's or classifier's `backbone.` is found without prefix"
        )
    allow_missing = init_cfg.get('allow_missing', ())
    allow_missing = [allow_missing] if isinstance(allow_missing, str) else allow_missing
    print_log(str(load_pretrained(model, init_cfg['checkpoint'], allow_missing)), logger='current')


def load_pretrained(model: nn.Module, checkpoint: str | Path, allow_missing: Sequence[str] = ()) -> LoadReport:
    """Fills every parameter and buffer of a backbone from a checkpoint, and returns a report.

    The backbone's part is taken from a detector's or classifier's checkpoint. Position embeddings and bias tables of
    another size are resized. What the source layout lacks is set to its published initial value: a Swin detector's
    output norms and ViT's relative positions, from a classifier; the bias of 0 of queries, keys and values, from the
    DTN authors' ViT; lambda and position weights of DTN with another `init` than 'paper', from LayerNorm.

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
    content = read_checkpoint(source)
    whole = state_dict_in(content, source)
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
    converted, report = _convert(model, state_dict, layout, source)
    report.note = '\n  '.join(filter(None, (report.note, describe_entries(content))))
    for key in optional & converted.keys():
        if converted[key].shape != expected[key].shape:
            converted.leave_out(key)
    report.loaded = [key for key in expected if key in converted and key not in {*report.resized, *converted.added}]
    report.missing = [key for key in expected if key in converted.added or key not in converted]
    report.unexpected = [
        key for key in whole if not key.startswith(prefix) or key.removeprefix(prefix) in converted.unused
    ]
    hint = ''
    if any(key.endswith('_logit') for key in expected.keys() - converted.keys() - optional):
        hint = "\nFor DTN from LayerNorm weights set token_norm_cfg=dict(type='DTN', init='layer_norm')."
    check_fit(model, converted, source, optional, hint)
    model.load_state_dict(converted, strict=not optional)
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
    expected, converted = model.state_dict(), Converted(state_dict)
    backbone = getattr(model, 'backbone', None)
    before = {key.removeprefix(_BACKBONE): value for key, value in converted.items() if key.startswith(_BACKBONE)}
    report = LoadReport(type(model).__name__, str(source), 'TokenNorm')
    misfits = hasattr(backbone, 'layouts') and misfit(backbone.state_dict(), before)
    layout = find_layout(backbone, before) if misfits else None
    if layout is not None and not layout.author.endswith('TokenNorm'):
        of_backbone, report = _convert(backbone, before, layout, str(source))
        report.model = type(model).__name__
        converted = Converted({key: value for key, value in converted.items() if not key.startswith(_BACKBONE)})
        converted.update({_BACKBONE + key: value for key, value in of_backbone.items()})
        converted.unused = [_BACKBONE + key for key in of_backbone.unused]
        converted.added = [_BACKBONE + key for key in of_backbone.added]
    if new_heads:
        add_to_layer_norm(converted, model)
        fits = {key for key, value in expected.items() if key in converted and converted[key].shape == value.shape}
        report.missing = [key for key in expected if key not in fits and not key.startswith(_BACKBONE)]
        for key in [key for key in converted if key not in fits and not key.startswith(_BACKBONE)]:
            converted.leave_out(key)
    report.unexpected = converted.unused
    report.missing += converted.added
    report.loaded = [key for key in converted if key not in converted.added]
    check_fit(model, converted, source, report.missing)
    return dict(converted), report


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


def misfit(expected: dict[str, Tensor], given: dict[str, Tensor]) -> str:
    """Returns one line each for missing, unexpected and mis-shaped keys of `given`; '' if everything fits."""
    reshaped = [
        f'{key} ({tuple(given[key].shape)} in the file, {tuple(value.shape)} in the model)'
        for key, value in expected.items()
        if key in given and given[key].shape != value.shape
    ]
    problems = {
        'missing': sorted(set(expected) - set(given)),
        'unexpected': sorted(set(given) - set(expected)),
        'of another shape': reshaped,
    }
    return '\n'.join(f'  {len(keys)} {problem}: {shorten(keys, 4)}' for problem, keys in problems.items() if keys)


def matching(names: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """The names that match one of the patterns. A pattern that matches none raises `UserError`."""
    matched: set[str] = set()
    for pattern in patterns:
        if not (new := {name for name in names if fnmatchcase(name, pattern)}):
            raise UserError(f'allow_missing: {pattern!r} matches no parameter')
        matched |= new
    return matched
