"""Detectors that commands take: a name, files, or an open `Detector`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokennorm.base.messages import UserError
from tokennorm.commands.checks import check_mapping, path_of
from tokennorm.config.detector_files import Named, detector_files
from tokennorm.plan.options import check_config

EXPORTED = ('.onnx', '.xml')
INPUTS = ('.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp', '.mp4', '.avi', '.mov', '.mkv')


def is_exported(model: Any) -> bool:
    """Returns whether a detector is an exported file, by its name or open."""
    name = getattr(model, 'checkpoint', model)
    return isinstance(name, str | Path) and str(name).endswith(EXPORTED)


def name_detector(detector: Any, checkpoint: str | Path | None, cfg_options: Mapping[str, Any] | None) -> Named:
    """Returns the files of a detector that is not exported, and the entries to set in its config.

    Raises:
        UserError: for a detector that does not exist, and for an exported file.
    """
    check_mapping('cfg_options', cfg_options)
    if is_exported(detector):
        raise UserError(
            f'{getattr(detector, "checkpoint", detector)}: this command needs the work directory, or the config and '
            'the checkpoint, of an exported file; predict and benchmark take the file'
        )
    options = dict(cfg_options or {})
    if isinstance(detector, str | Path):
        if str(detector).lower().endswith(INPUTS):
            raise UserError(f'{detector} is not a detector: name one before it, such as a work directory')
        config, found = detector_files(path_of('detector', detector), None if checkpoint is None else _file(checkpoint))
        if config != found:  # the config is inside
            check_config(config)
        return Named(config, found, options)
    if checkpoint is not None:
        raise UserError('an open Detector has its checkpoint; leave out checkpoint')
    if (opened := getattr(detector, 'opened_with', None)) is None:
        raise UserError(f'detector {detector!r:.80} must be a work directory, a name or a Detector')
    return Named(opened.config, opened.checkpoint, {**opened.cfg_options, **options})


def mebibytes_of(exported: str | Path) -> float:
    """Returns the size of an exported file, with OpenVINO's second one."""
    file = Path(exported)
    files = [file, file.with_suffix('.bin')] if file.suffix == '.xml' else [file]
    return sum(one.stat().st_size for one in files if one.is_file()) / 2**20


def _file(checkpoint: Any) -> str:
    return checkpoint if '://' in str(checkpoint) else str(path_of('checkpoint', checkpoint))
