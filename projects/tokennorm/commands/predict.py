"""`tokennorm.predict`: detects objects in images, a video, a webcam or a stream, and writes what it finds."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokennorm.base.console import say
from tokennorm.base.cores import container_cores
from tokennorm.base.files import make_output_dir
from tokennorm.base.messages import IncompleteWarning, UserError, counted, in_python, shorten
from tokennorm.commands.checks import check_at_least_one, check_fraction, check_mapping, codes_of, path_of, texts_of
from tokennorm.commands.importing import import_openmmlab
from tokennorm.commands.opening import is_exported, name_detector
from tokennorm.commands.result import Result
from tokennorm.config.detector_files import Named
from tokennorm.findings import Findings, judging


@dataclass(frozen=True)
class PredictionResult(Result):
    """Result of `tokennorm.predict`."""

    out: Path  #: folder of `detections.json`, in COCO's format, and of the drawings
    images: int  #: images that were read
    detections: int  #: all detections, which `detections.json` has
    shown: int  #: detections with at least the score that is drawn
    unread: Sequence[str]  #: images that could not be read, with the reason
    unwritten: Sequence[str]  #: images whose drawing or crops could not be written
    interrupted: bool  #: whether it was ended by Ctrl+C; what was done before is kept
    problems: Sequence[str]  #: lines about the last three; the command ends with an error if there are any


@in_python
def predict(
    detector: Any,
    path: str | Path | int | Sequence[str | Path],
    checkpoint: str | Path | None = None,
    *,
    out: str | Path = 'work_dirs/predict',
    score_thr: float | None = None,
    thresholds: str | float | Path | None = None,
    classes: Sequence[str] = (),
    no_save_vis: bool = False,
    save_crops: bool = False,
    save_txt: bool = False,
    batch_size: int = 1,
    device: str | None = None,
    tiles: int | None = None,
    overlap: float = 0.2,
    tta: bool = False,
    track: bool = False,
    every: int = 1,
    allow: Sequence[str] = (),
    strict: bool = False,
    cfg_options: Mapping[str, Any] | None = None,
) -> PredictionResult:
    """Detects objects in files, and writes detections.json and drawings. `Detector` detects them in arrays.

    Args:
        detector: As `tokennorm.Detector` takes it, or an open one, which is used as it is.
        path: Image files or their URLs, a folder of images, a video, the index of a webcam or the URL of a stream.
        checkpoint: Checkpoint of a config.
        out: Output folder.
        score_thr: Lowest score that is drawn; None is 0.3, or the `thresholds`.
        thresholds: Keep detections from this score on: 'best' for the thresholds of each class that the training
            run's report recommends, a number, or a thresholds.json.
        classes: Keep these classes only.
        no_save_vis: Write no drawings.
        save_crops: Write the box of each object into crops/CLASS.
        save_txt: Write each image's objects into labels/NAME.txt, in YOLO's format.
        batch_size: Images per forward pass.
        device: Such as 'cuda:0' or 'cpu'; None is the best one available.
        tiles: Detect on tiles of this side in pixels, for small objects in large images.
        overlap: Fraction of a tile that it shares with the next.
        tta: Test-time augmentation: merge the boxes of each image and its mirror image.
        track: Video only: give objects ids across frames (needs the package trackers).
        every: Video only: use every Nth frame.
        allow: Codes of rules to overrule.
        strict: Warnings are errors.
        cfg_options: Entries of the config to set.

    Raises:
        UserError: for whatever ends `tokennorm predict` before the first image.

    Warns:
        IncompleteWarning: for images that could not be read or written.
    """
    for name, value in (('--batch-size', batch_size), ('--every', every)):
        check_at_least_one(name, value)
    if tiles is not None:
        check_at_least_one('--tiles', tiles)
    if score_thr is not None:
        check_fraction('--score-thr', score_thr)
    check_fraction('--overlap', overlap)
    if overlap == 1:
        raise UserError('--overlap 1 must be below 1')
    check_mapping('cfg_options', cfg_options)
    sources, out = _sources(path), path_of('--out', out)
    classes, allow = texts_of('--classes', classes), codes_of(allow)
    if isinstance(detector, str | Path) and str(detector).endswith('.pt2'):
        raise UserError(f'{detector}: load a .pt2 file with torch.export.load; only .onnx and .xml run here')
    is_open = not isinstance(detector, str | Path)
    named = None if is_exported(detector) else name_detector(detector, checkpoint, cfg_options)
    if named is None and (checkpoint or device or cfg_options or tta):
        raise UserError(
            f'{getattr(detector, "checkpoint", detector)}: an exported file takes no checkpoint, --device, '
            '--cfg-options or --tta'
        )
    if is_open and (device or cfg_options or tta):
        raise UserError('an open Detector is used as it is: give device, options and tta when you open it')

    from tokennorm.datasets.image_files import PARTLY_READ_IMAGE
    from tokennorm.images.pixels import silent_opencv
    from tokennorm.inference.input_images import check_sources, is_video, open_sources
    from tokennorm.inference.prediction import OF_PREDICT, Options, Predictor, uneven_times
    from tokennorm.inference.prediction import predict as predict_all

    check_sources(sources)
    if (track or every != 1) and not is_video(sources[0]):
        raise UserError(f'--track and --every need a video, a webcam or a stream; {sources[0]} is not one')
    make_output_dir(out)
    if save_txt and (out / 'labels').exists() and not (out / 'labels' / OF_PREDICT).exists():
        raise UserError(f'{out / "labels"} exists, perhaps with true labels: choose another --out')
    options = Options(
        score_thr=score_thr,
        thresholds=thresholds,
        classes=classes,
        tiles=tiles,
        overlap=overlap,
        batch_size=batch_size,
        track=track,
        drawings=not no_save_vis,
        crops=save_crops,
        txt=save_txt,
    )
    with silent_opencv(), judging(Findings(allow, strict)) as found:
        opened = detector if is_open else _open(detector, named, device, tta)
        found.show()
        found.stop()
        recommended = opened.recommended
        source = open_sources(sources, out, every, options.drawings)
        predictor = Predictor(opened, options, source.frame_rate)
    if named is not None:
        from tokennorm.config.tree import walk

        steps = (part.get('score_thr') for _, part in walk(opened.cfg.model.get('test_cfg') or {}, ''))
        if (least := max((value for value in steps if isinstance(value, float)), default=0)) > predictor.lowest:
            say(f'The config drops scores below {least:g}; --cfg-options sets the score_thr in its model.test_cfg.')
    if (out / 'detections.json').exists():
        say(f'{out} has an earlier run: files that are not written again stay in it. --out sets another folder.')
    with silent_opencv():
        results = predict_all(predictor, source, out)
    with judging(found):
        if source.partly:
            PARTLY_READ_IMAGE.report(items=sorted(source.partly))
        found.show()

    images, objects = (len(results.content[name]) for name in ('images', 'annotations'))
    shown = f'{results.shown} with scores of at least {predictor.lowest:.3g}'
    if options.drawings:
        shown += ' are drawn'
    found = f'{counted(objects, "detection")} on {counted(images, "image")}'
    lines = [f'{out}: detections.json ({found}); {shown}']
    if thresholds is None and recommended is not None and (results.shown or min(recommended) < predictor.lowest):
        question = 'Too many boxes?' if results.shown else 'No boxes?'
        lines.append(f'{question} --thresholds best applies the score thresholds that the training run recommends.')
    unread, unwritten, done, problems = results.unread, results.unwritten, len(results.unread) + images, []
    if unread:
        problems.append(f'{len(unread)} of {done} files could not be read: {shorten(unread, 5)}')
    if unwritten:
        count = counted(len(unwritten), 'image')
        problems.append(f'drawings or crops of {count} could not be written: {shorten(unwritten, 5)}')
    if results.interrupted and source.count:
        problems.append(f'interrupted after {done} of {counted(source.count, "image")}')
    elif source.count and done + 2 < 0.95 * source.count and not _ends_in_time(source):
        lines.append(f'the file claims {source.count} frames, and {done} were decoded: it may be trimmed or damaged')
    elif not source.count and not results.interrupted:
        lines.append(f'{sources[0]}: the stream ended after {counted(done, "frame")}')
    if options.drawings and source.frame_rate and (uneven := uneven_times([*source.times.values()], source.frame_rate)):
        lines.append(uneven)
    if predictor.full:
        where = 'tiles' if options.tiles else 'images'
        lines.append(
            f'{predictor.full} {where} have all of the {opened.most_detections} detections that the detector gives: '
            'there may be more objects. Raise max_per_img of its model.test_cfg with --cfg-options, when you export a '
            'file, too, or use --tiles'
        )
    if problems:
        warnings.warn(IncompleteWarning('; '.join(problems)), stacklevel=2)
    return PredictionResult(
        out, images, objects, results.shown, unread, unwritten, results.interrupted, problems, lines=lines
    )


def _ends_in_time(source: Any) -> bool:
    """Whether the last frame is where the claimed one would be: of uneven frames the claim is an estimate."""
    return bool(source.times) and [*source.times.values()][-1] * source.frame_rate >= 0.95 * (source.count - 1)


def _sources(path: Any) -> list[str]:
    """The inputs as texts; an index of a webcam may be an integer."""
    values = [path] if isinstance(path, str | Path | int) else path
    if isinstance(values, list | tuple) and not values:
        raise UserError('path is an empty list; name images, a folder or a video')
    for one in values if isinstance(values, list | tuple) else [path]:
        if not isinstance(one, str | Path | int):
            raise UserError(
                f'path must be files or a folder, not {type(one).__name__}; Detector(...)(images) takes arrays and '
                'images of Pillow'
            )
    return [str(one) if isinstance(one, int) or '://' in str(one) else str(path_of('path', one)) for one in values]


def _open(detector: str | Path, named: Named | None, device: str | None, tta: bool) -> Any:
    if named is None:
        from tokennorm.inference.runtime import ExportedDetector

        return ExportedDetector(detector, container_cores())
    import_openmmlab()
    from tokennorm.inference.torch_detector import TorchDetector

    opened = TorchDetector(named.config, named.checkpoint, device, named.cfg_options, tta)
    say(f'Checkpoint: {opened.description}')
    return opened
