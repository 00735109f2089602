"""Loads a backbone's checkpoint of any known layout completely or not at all, and reports on each parameter."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mmengine.logging import print_log
from torch import Tensor, nn

from tokennorm.checkpoints.dtn import fill_from_layer_norm, from_published_dtn
from tokennorm.checkpoints.layouts import Layout, layouts_of, recognise
from tokennorm.checkpoints.load_report import LoadReport, misfit
from tokennorm.checkpoints.reading import CheckpointError, find_checkpoint, read_state_dict
from tokennorm.checkpoints.resizing import resize_tables
from tokennorm.messages import shorten

StateDict = dict[str, Tensor]
Convert = Callable[[StateDict], StateDict]


class ReadKeys(dict):
    """A state dict that notes which entries are read by key. Iterating over the items does not count as reading."""

    def __init__(self, state_dict: StateDict) -> None:
        super().__init__(state_dict)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Tensor:
        self.read.add(key)
        return super().__getitem__(key)


def load_from_init_cfg(model: nn.Module, init_cfg: Mapping[str, Any], convert: Convert | None = None) -> LoadReport:
    """Calls `load_pretrained` with `dict(type='Pretrained', checkpoint=..., allow_missing=...)` and logs its report.

    Raises:
        ValueError: for an `init_cfg` of another form.
        FileNotFoundError, OSError, CheckpointError: as `load_pretrained`.
    """
    checkpoint, allow_missing = parse_init_cfg(init_cfg)
    report = load_pretrained(model, checkpoint, convert, allow_missing)
    print_log(str(report), logger='current')
    return report


def parse_init_cfg(init_cfg: Any) -> tuple[str, Sequence[str]]:
    """Returns the `checkpoint` and the `allow_missing` of a backbone's `init_cfg`.

    Raises:
        ValueError: for any other form, of which mmengine's loader would silently load what fits.
    """
    known = isinstance(init_cfg, Mapping) and init_cfg.get('type') == 'Pretrained' and 'checkpoint' in init_cfg
    if not known or set(init_cfg) - {'type', 'checkpoint', 'allow_missing'}:
        raise ValueError(
            f"init_cfg={init_cfg} must be dict(type='Pretrained', checkpoint=...) with a file, a URL or a work "
            'directory; allow_missing=[...] in it lists parameters, with * for anything, that may stay initialized'
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

    The backbone's part is taken from a detector's or classifier's checkpoint. Position embeddings and bias tables of
    another size are resized. Parameters that the source layout lacks are set to their published initial values:

    - output norms of a Swin detector, and ViT's relative positions: those of a detector, loaded from a classifier;
    - the bias of 0 of queries, keys and values, loaded from the DTN authors' ViT;
    - lambda and position weights of DTN with another `init` than 'paper', loaded from a network with LayerNorm.

    Args:
        model: The backbone.
        checkpoint: A file, a URL, or the work directory of a training run, of which the best checkpoint is loaded.
        convert: Converts the checkpoint's state dict to the model's keys; it may drop entries. The report counts an
            entry as used if the converter returns it unchanged or reads it by key. None converts by the layout.
        allow_missing: Names, with `*` for anything, of parameters and buffers that stay initialized if the file has
            none of their name and shape.

    Raises:
        FileNotFoundError, OSError: as `read_checkpoint`.
        CheckpointError: if other parameters of the model would stay initialized, or entries would be left over.
        ValueError: for a name in `allow_missing` that no parameter has.
    """
    checkpoint = find_checkpoint(checkpoint)
    whole = read_state_dict(checkpoint)
    prefix = 'backbone.' if any(key.startswith('backbone.') for key in whole) else ''
    sources = {key.removeprefix(prefix): value.detach() for key, value in whole.items() if key.startswith(prefix)}
    expected = model.state_dict()
    optional = matching(expected, allow_missing)
    if convert is None:
        layout = _find_layout(model, sources, checkpoint)
        author, fill = f'names of {layout.author}', layout.fill
        steps: list[Convert] = [from_published_dtn, lambda state_dict: layout.convert(state_dict, model)]
    else:
        author, fill, steps = 'as given', None, [convert]
    try:
        converted, read = _convert(sources, steps)
        resized = resize_tables(converted, model)
    except ValueError as error:
        raise CheckpointError(f'{checkpoint}: {error}') from error
    filled = fill_from_layer_norm(fill(resized, model) if fill else resized, model)
    for key in optional & set(filled):
        if filled[key].shape != expected[key].shape:
            del filled[key]

    report = LoadReport(type(model).__name__, checkpoint, author)
    from_file = {id(value) for value in sources.values()}
    for key in expected:
        if key not in filled or key not in converted:
            report.missing.append(key)
        elif resized[key] is not converted[key]:
            report.resized.append(key)
        elif id(converted[key]) in from_file:
            report.matched.append(key)
        else:
            report.converted.append(key)
    used = {id(converted[key]) for key in expected if key in filled and key in converted}
    unused = [key for key, value in sources.items() if key not in read and id(value) not in used]
    report.unexpected = [f'{prefix}{key}' for key in unused] + [key for key in whole if not key.startswith(prefix)]
    needed = {key: value for key, value in expected.items() if key in filled or key not in optional}
    if problems := misfit(needed, filled):
        counts = ', '.join(f'{len(getattr(report, kind))} {kind}' for kind in ('matched', 'converted', 'resized'))
        hint = ''
        if any(key.endswith('_logit') for key in needed.keys() - filled.keys()):
            hint = "For DTN from LayerNorm weights set token_norm_cfg=dict(type='DTN', init='layer_norm').\n"
        message = _does_not_fit(model, checkpoint, problems)
        raise CheckpointError(f'{message}\n{hint}Of the others, {author}: {counts}.')
    if len(report.missing) == len(expected):
        raise CheckpointError(f'{checkpoint} fills no parameter of {report.model}')
    model.load_state_dict(filled, strict=not optional)
    return report


def _convert(sources: StateDict, steps: Iterable[Convert]) -> tuple[StateDict, set[str]]:
    """Applies the steps of a conversion, and returns its result and the keys of `sources` that were read by key."""
    names = {id(value): key for key, value in sources.items()}
    current, read = sources, set()
    for step in steps:
        noted = ReadKeys(current)
        result = dict(step(noted))
        read |= {names[id(current[key])] for key in noted.read & current.keys() if id(current[key]) in names}
        current = result
    return current, read


def check_fit(model: nn.Module, state_dict: StateDict, source: str | Path) -> None:
    """Raises `CheckpointError` unless a state dict has the keys and shapes of a model; `source` names it."""
    if problems := misfit(model.state_dict(), state_dict):
        raise CheckpointError(_does_not_fit(model, source, problems))


def _does_not_fit(model: nn.Module, source: str | Path, problems: str) -> str:
    return (
        f'{source} does not fit {type(model).__name__}:\n{problems}\n'
        'Use the config that the checkpoint was trained with, or one with the same norms, stem, arch, out_type and '
        'pretrain_img_size.'
    )


def _find_layout(model: nn.Module, state_dict: StateDict, source: str) -> Layout:
    """The layout of a state dict. If the model cannot load it, raises `CheckpointError`."""
    taken, layout = layouts_of(model), recognise(state_dict)
    if layout in taken:
        return layout
    raise CheckpointError(
        f'{source} is {f"a {layout}" if layout else "of no known layout"}, with keys such as '
        f'{shorten(list(state_dict), 3)}; {type(model).__name__} takes {", ".join(map(str, taken))}'
    )


def matching(names: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """The names that match one of the patterns. A pattern that matches none raises `ValueError`."""
    found = {pattern: {name for name in names if fnmatchcase(name, pattern)} for pattern in patterns}
    for pattern, matched in found.items():
        if not matched:
            raise ValueError(f'allow_missing: {pattern!r} matches no parameter')
    return set().union(*found.values())
