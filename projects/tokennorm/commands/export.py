"""`Detector.export`: writes a detector as one file that runs without its config."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokennorm.base.console import say
from tokennorm.base.files import check_output_file
from tokennorm.base.messages import UserError, counted, in_python, shorten, user_errors
from tokennorm.commands.checks import check_choice, codes_of, optional_path, path_of
from tokennorm.commands.importing import import_openmmlab
from tokennorm.commands.opening import mebibytes_of, name_detector
from tokennorm.commands.result import Result
from tokennorm.commands.test import SPLITS
from tokennorm.findings import Findings, judging

SUFFIXES = ('.onnx', '.pt2', '.xml')
# a difference, one of float16, and a loss of AP by INT8, from 0 to 1, with which --verify fails
TOLERANCE, TOLERANCE_FP16, TOLERANCE_INT8 = 5e-4, 5e-3, 1e-2


@dataclass(frozen=True)
class ExportResult(Result):
    """Result of `Detector.export`."""

    file: Path  #: the written file
    card: Path  #: the model card
    mebibytes: float  #: size of the file, with OpenVINO's second one
    classes: Sequence[str]
    exported_ap: Mapping[str, float] | None  #: by 'bbox' and 'segm', from 0 to 1, on the images of `verify`
    pytorch_ap: Mapping[str, float] | None  #: of PyTorch on the same images


@in_python
def export(
    detector: Any,
    out: str | Path,
    *,
    checkpoint: str | Path | None = None,
    fp16: bool = False,
    int8: bool = False,
    batch_size: int | None = None,
    calibrate: str | Path | None = None,
    license: str = '',
    verify: str | Path | None = None,
    split: str = 'val',
    thresholds: str | float | Path | None = None,
    allow: Sequence[str] = (),
    strict: bool = False,
    cfg_options: Mapping[str, Any] | None = None,
) -> ExportResult:
    """Writes a detector as one file that runs without its config, and a model card next to it.

    Args:
        detector: As `tokennorm.Detector` takes it, or an open one.
        out: Output file; must end in .onnx, .pt2 (PyTorch) or .xml (OpenVINO).
        checkpoint: Checkpoint of a config.
        fp16: Compute backbone, neck and heads in float16, which halves the file.
        int8: Quantize convolutions and linear layers to INT8 with the images of `calibrate`; for .onnx and .xml.
        batch_size: 1 fixes an .onnx or .xml file to one image, which it cuts out of the canvas by itself: detectors
            that mask padding have no masks then, and are faster. None is any number.
        calibrate: Folder of images for `int8`, of which at most 100 are used.
        license: License of the weights, for the metadata of the file and its model card.
        verify: Dataset on whose images the written file and PyTorch are evaluated. Not for .pt2.
        split: Split for `verify`.
        thresholds: Score thresholds of each class for the metadata: 'best', a number, or a thresholds.json; None is
            'best' if the run has them.
        allow: Codes of rules to overrule.
        strict: Warnings are errors.
        cfg_options: Entries of the config to set.

    Raises:
        UserError: also where the file is written, and its AP is not that of PyTorch: with `verify` if they differ by
            0.05 or more, from 0 to 100, with `fp16` by 0.5, or with `int8` if that of the file is lower by 1.0.
    """
    out, allow = path_of('out', out), codes_of(allow)
    calibrate, verify = optional_path('--calibrate', calibrate), optional_path('--verify', verify)
    check_choice('--split', split, SPLITS)
    if out.suffix not in SUFFIXES:
        raise UserError(f'OUT {out} must end in .onnx, .pt2 or .xml')
    if int8 != (calibrate is not None):
        raise UserError('--int8 and --calibrate DIR need each other')
    if int8 and (out.suffix == '.pt2' or fp16):
        raise UserError('--int8 writes .onnx and .xml files, without --fp16')
    if verify is not None and out.suffix == '.pt2':
        raise UserError('--verify needs an .onnx or .xml file')
    if batch_size is not None and (isinstance(batch_size, bool) or batch_size != 1):
        raise UserError(f'--batch-size {batch_size} must be 1, or left out for any number of images')
    if batch_size and out.suffix == '.pt2':
        raise UserError('--batch-size 1 writes .onnx and .xml files')
    named = name_detector(detector, checkpoint, cfg_options)
    check_output_file(out)
    import_openmmlab()
    from tokennorm.datasets.discovery import find_splits
    from tokennorm.datasets.image_files import list_images
    from tokennorm.engine.rules import Built, judge
    from tokennorm.export.whole_detector import WholeDetector
    from tokennorm.export.writing import canvas_of, check_packages, describe, export_detector
    from tokennorm.inference.runtime import ImageError
    from tokennorm.inference.torch_detector import TorchDetector
    from tokennorm.report.card import Card, report_of, write_card

    images = None
    with judging(Findings(allow, strict)) as found:
        if verify is not None:
            images = find_splits(verify, (split,), where='--verify')[split]
        if calibrate is not None and not (calibrate.is_dir() and list_images(calibrate)):
            raise UserError(f'--calibrate: {calibrate} has no images; name a folder with some, .jpg or .png')
        check_packages(out.suffix, int8)
        trained = TorchDetector(named.config, named.checkpoint, 'cpu', named.cfg_options)
        whole = WholeDetector(trained.model, fp16, alone=batch_size == 1, canvas=canvas_of(trained.cfg))
        if whole.by_mmdet and out.suffix == '.pt2':
            raise UserError(f'OUT {out}: this detector takes one image at a time, in an .onnx or .xml file only')
        judge('export', Built(trained.cfg, model=trained.model, batch_size=1 if whole.alone else None))
        found.show()
        found.stop()
    say(f'Checkpoint: {trained.description}')
    if getattr(detector, 'tta', False):
        say('The file has no test-time augmentation, with which this Detector was opened')
    if whole.by_mmdet:
        say('The file takes one image at a time, as mmdet finds the objects of each image on its own')
    meta, config = trained.model.dataset_meta, Path(named.config).name
    lowest = None
    if thresholds is not None or trained.recommended is not None:
        lowest = trained.thresholds('best' if thresholds is None else thresholds).tolist()
    metadata = describe(whole, trained.cfg, meta, config, license, lowest)
    say(f'Writing {out}')
    with user_errors(ImageError, where='--calibrate: '):
        export_detector(whole, metadata, out, list_images(calibrate) if calibrate is not None else ())
    size = mebibytes_of(out)
    card = Card(
        out,
        meta['classes'],
        config=config,
        license=license,
        report=report_of(trained.checkpoint),
        metadata={name.removeprefix('tokennorm.'): json.loads(value) for name, value in metadata.items()},
    )
    path = write_card(card)
    lines = [f'{out}: {size:.1f} MiB, classes: {shorten(meta["classes"])}', f'Model card: {path}']
    result = ExportResult(out, path, size, tuple(meta['classes']), None, None, lines=lines)
    if images is None:
        return result

    from tokennorm.export.measure import change_by_padding, measure
    from tokennorm.inference.runtime import ExportedDetector

    count = counted(len(images.content['images']), 'image')
    say(f'Evaluating PyTorch and {out} on the {split} images of {verify}')
    with user_errors(ImageError, where='--verify: '):
        written = ExportedDetector(out)
        pytorch, exported = measure([trained, written], images)
        with judging(found):
            score, pixels = change_by_padding(written, images)
    tolerance = TOLERANCE_INT8 if int8 else TOLERANCE_FP16 if fp16 else TOLERANCE
    losses = {kind: ap - exported.aps[kind] for kind, ap in pytorch.aps.items()}
    differences = losses if int8 else {kind: abs(loss) for kind, loss in losses.items()}  # INT8 may be better
    for kind, value in differences.items():
        lines.append(
            f'{kind} AP on {count}: exported {100 * exported.aps[kind]:.2f}, PyTorch '
            f'{100 * pytorch.aps[kind]:.2f}: {"a loss of" if int8 else "they differ by"} '
            f'{"less than" if value < tolerance else "at least"} {100 * tolerance:g}'
        )
    lines.append(f'On a canvas of twice the sides scores change by {score:.3f} at most, boxes by {pixels:.1f} pixels')
    found.show()
    aps = ', '.join(f'{kind} AP {100 * ap:.2f}' for kind, ap in exported.aps.items())
    write_card(replace(card, measured=f'This file, on {count}: {aps}.'))
    if max(pytorch.aps.values()) < 0.01:
        lines.append('An AP near 0 hardly compares them: verify with data that the detector was trained for')
    if max(differences.values()) >= tolerance:
        say('\n'.join(lines))
        advice = '; calibrate with more images, or leave out --int8' * int8 + '; leave out --fp16' * fp16
        raise UserError(f'--verify: {out} is written, and its AP is not that of PyTorch{advice}')
    found.stop()
    return replace(result, exported_ap=exported.aps, pytorch_ap=pytorch.aps)
