"""Loads a backbone's checkpoint of any known layout whole or not at all, and says what became of each parameter."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.logging import print_log
from torch import Tensor, nn

from tokennorm.checkpoints.layer_norm_start import with_layer_norm_start
from tokennorm.checkpoints.layouts import Layout, layouts_of, recognise
from tokennorm.checkpoints.load_report import LoadReport, misfit
from tokennorm.checkpoints.provenance import origins, tracked
from tokennorm.checkpoints.reading import CheckpointError, find_checkpoint, read_checkpoint, read_state_dict
from tokennorm.checkpoints.resizing import resize_tables
from tokennorm.messages import shorten

__all__ = [
    'CheckpointError',
    'check_fit',
    'load_from_init_cfg',
    'load_pretrained',
    'parse_init_cfg',
    'read_checkpoint',
    'read_state_dict',
]

StateDict = dict[str, Tensor]
Convert = Callable[[StateDict], StateDict]


def load_from_init_cfg(model: nn.Module, init_cfg: Mapping[str, Any], convert: Convert | None = None) -> LoadReport:
    """`load_pretrained` from `dict(type='Pretrained', checkpoint=..., allow_missing=...)`, with its report logged.

    Raises:
        ValueError: as `parse_init_cfg`.
        FileNotFoundError, OSError, CheckpointError: as `load_pretrained`.
    """
    checkpoint, allow_missing = parse_init_cfg(init_cfg)
    report = load_pretrained(model, checkpoint, convert, allow_missing)
    print_log(str(report), logger='current')
    return report


def parse_init_cfg(init_cfg: Any) -> tuple[str, Sequence[str]]:
    """The `checkpoint` and the `allow_missing` of a backbone's `init_cfg`.

    Raises:
        ValueError: for any other form of it, of which mmengine's loader would take what fits and no more.
    """
    known = isinstance(init_cfg, Mapping) and init_cfg.get('type') == 'Pretrained' and 'checkpoint' in init_cfg
    if not known or set(init_cfg) - {'type', 'checkpoint', 'allow_missing'}:
        raise ValueError(
            f"init_cfg={init_cfg} must be dict(type='Pretrained', checkpoint=...), of a file, an address or a folder; "
            'allow_missing=[...] in it names parameters, with * for anything, that may keep their start'
        )
    allow_missing = init_cfg.get('allow_missing', ())
    return init_cfg['checkpoint'], [allow_missing] if isinstance(allow_missing, str) else allow_missing


def load_pretrained(
    model: nn.Module,
    checkpoint: str | Path,
    convert: Convert | None = None,
    allow_missing: Sequence[str] = (),
) -> LoadReport:
    """Fills every parameter and buffer of a backbone from a checkpoint, and returns a report.

    Of a detector's or a classifier's checkpoint it takes the backbone's part. Position embeddings and bias tables of
    another size are resized. What may be missing in the file without being allowed is what its layout has no name for
    and the published models start with: output norms of detectors on Swin, relative positions of 0 of ViT's, biases of
    0 of the DTN authors' queries, keys and values, and lambda and positions of `DTN(start='layer_norm')`.

    Args:
        model: The backbone.
        checkpoint: A file, an address, or the work folder of a training, whose latest checkpoint it is.
        convert: The checkpoint's state dict to the model's keys; it may drop what the model has no use for. None finds
            it by the layout, for the backbones of `LAYOUTS`.
        allow_missing: Names, with `*` for anything, of parameters and buffers that may keep their start where the file
            has none of their name and shape.

    Raises:
        FileNotFoundError, OSError: as `read_checkpoint`.
        CheckpointError: where parameters of the model would stay at their random start, or others would be left over.
        ValueError: for a name in `allow_missing` that no parameter has.
    """
    checkpoint = find_checkpoint(checkpoint)
    whole = read_state_dict(checkpoint)
    prefix = 'backbone.' if any(key.startswith('backbone.') for key in whole) else ''
    sources = tracked({key.removeprefix(prefix): value for key, value in whole.items() if key.startswith(prefix)})
    expected = model.state_dict()
    may_start = matching(expected, allow_missing)
    author = 'as given'
    if convert is None:
        layout = _find_layout(model, sources, checkpoint)
        author, convert = f'names of {layout.author}', partial(layout.convert, model=model)
    try:
        with torch.enable_grad():
            converted = convert(sources)
            resized = resize_tables(converted, model)
    except ValueError as error:
        raise CheckpointError(f'{checkpoint}: {error}') from error
    filled = with_layer_norm_start(model, resized)
    for key in may_start & set(filled):
        if filled[key].shape != expected[key].shape:
            del filled[key]

    report = LoadReport(type(model).__name__, checkpoint, author)
    _account(report, sources, converted, resized, filled, expected)
    report.unexpected = [f'{prefix}{key}' for key in report.unexpected]
    report.unexpected += [key for key in whole if not key.startswith(prefix)]
    needed = {key: value for key, value in expected.items() if key in filled or key not in may_start}
    if problems := misfit(needed, filled):
        counts = ', '.join(f'{len(getattr(report, kind))} {kind}' for kind in ('matched', 'converted', 'resized'))
        raise CheckpointError(f'{_does_not_fit(model, checkpoint, problems)}\nOf the others, {author}: {counts}.')
    if len(report.missing) == len(expected):
        raise CheckpointError(f'{checkpoint} fills nothing of {report.model}')
    model.load_state_dict({key: value.detach() for key, value in filled.items()}, strict=not may_start)
    return report


def _account(
    report: LoadReport,
    sources: StateDict,
    converted: StateDict,
    resized: StateDict,
    filled: StateDict,
    expected: Iterable[str],
) -> None:
    """Enters into a report what became of the `expected` keys of a model and of the `sources`, step by step."""
    used = set()
    for key in expected:
        made_from = origins(filled[key], sources) if key in filled else set()
        used |= made_from
        if not made_from:
            report.missing.append(key)
        elif resized[key] is not converted[key]:
            report.resized.append(key)
        elif filled[key] is sources[min(made_from)]:
            report.matched.append(key)
        else:
            report.converted.append(key)
    report.unexpected = [key for key in sources if key not in used]


def check_fit(model: nn.Module, state_dict: StateDict, source: str | Path) -> None:
    """Compares the keys and shapes of a state dict with those of a model.

    Raises:
        CheckpointError: with what of `source` is missing, unexpected or of another shape.
    """
    if problems := misfit(model.state_dict(), state_dict):
        raise CheckpointError(_does_not_fit(model, source, problems))


def _does_not_fit(model: nn.Module, source: str | Path, problems: str) -> str:
    return (
        f'{source} does not fit {type(model).__name__}:\n{problems}\n'
        'The norms, the stem, arch, out_type and pretrain_img_size of the config must be those it was trained with.'
    )


def _find_layout(model: nn.Module, state_dict: StateDict, source: str) -> Layout:
    """The layout of a state dict, one of those that the model takes.

    Raises:
        CheckpointError: where it is none of them.
    """
    taken, layout = layouts_of(model), recognise(state_dict)
    if layout in taken:
        return layout
    raise CheckpointError(
        f'{source} is {f"a {layout}" if layout else "of no known layout"}, with keys such as '
        f'{shorten(list(state_dict), 3)}; {type(model).__name__} takes {", ".join(map(str, taken))}'
    )


def matching(names: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """The names that match one of the patterns.

    Raises:
        ValueError: for a pattern that matches none.
    """
    found = {pattern: {name for name in names if fnmatchcase(name, pattern)} for pattern in patterns}
    for pattern, matched in found.items():
        if not matched:
            raise ValueError(f'allow_missing: {pattern!r} is the name of no parameter')
    return set().union(*found.values())
