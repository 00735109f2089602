"""Detects objects in images, a video, a webcam or a stream.

With an exported file it needs onnxruntime or openvino, and not PyTorch.

examples:
  tokennorm predict WORK_DIR IMAGES --thresholds best
  tokennorm predict CONFIG CHECKPOINT VIDEO --track --every 2
  tokennorm predict MODEL.onnx IMAGES
"""

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, use_detector
from tokennorm.cli.command import Parser, command, fraction, import_openmmlab, positive_integer
from tokennorm.console import say
from tokennorm.files import make_output_dir
from tokennorm.messages import UserError, shorten, user_errors


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    add_detector_arguments(parser)
    parser.add_argument(
        'path',
        nargs='+',
        metavar='PATH',
        help='image files or their URLs, a folder of images, a video, the index of a webcam (0) or the URL of a stream (rtsp://...)',
    )
    output, detection, video = map(parser.add_argument_group, ('output', 'detection', 'video'))
    output.add_argument(
        '--out', type=Path, default=Path('work_dirs/predict'), help='output folder; default: work_dirs/predict'
    )
    output.add_argument(
        '--score-thr',
        type=fraction,
        help='lowest score that is drawn; the json has all detections; default: 0.3, or the --thresholds',
    )
    output.add_argument(
        '--thresholds',
        metavar='best|NUMBER|FILE',
        help='keep detections, in the json too, from this score on: best for the thresholds of each class that the '
        "training run's report recommends, a number, or a thresholds.json",
    )
    output.add_argument('--classes', nargs='+', default=[], metavar='NAME', help='keep these classes only')
    output.add_argument('--no-save-vis', action='store_true', help='write no drawings')
    output.add_argument('--save-crops', action='store_true', help='write the box of each object into crops/CLASS')
    output.add_argument(
        '--save-txt', action='store_true', help="write each image's objects into labels/NAME.txt, in YOLO's format"
    )
    detection.add_argument(
        '--batch-size', type=positive_integer, default=1, metavar='N', help='images per forward pass; default: 1'
    )
    detection.add_argument('--device', help='such as cuda:0 or cpu; default: the best one available')
    detection.add_argument(
        '--tiles',
        type=positive_integer,
        metavar='S',
        help='detect on tiles of S x S pixels, for small objects in large images',
    )
    detection.add_argument(
        '--overlap', type=fraction, default=0.2, help='fraction of a tile that it shares with the next; default: 0.2'
    )
    detection.add_argument(
        '--tta', action='store_true', help='test-time augmentation: merge the boxes of each image and its mirror image'
    )
    video.add_argument(
        '--track', action='store_true', help='video only: give objects ids across frames (needs the package trackers)'
    )
    video.add_argument(
        '--every', type=positive_integer, default=1, metavar='N', help='video only: use every Nth frame; default: 1'
    )
    add_options_argument(parser)
    args = parser.parse_args(argv)
    if args.overlap == 1:
        parser.error('--overlap 1 must be below 1')
    if args.config.endswith('.pt2'):
        parser.error(f'{args.config}: load a .pt2 file with torch.export.load; only .onnx and .xml run here')
    if not is_exported(args.config):
        use_detector(args, following='path')
        return args
    if args.device or args.cfg_options or args.tta:
        parser.error(f'{args.config}: an exported file takes no --device, --cfg-options or --tta')
    if args.checkpoint is not None:  # argparse takes the first of several paths for it
        args.path.insert(0, args.checkpoint)
    return args


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    from tokennorm.inference.input_images import check_sources, is_video, open_sources
    from tokennorm.inference.prediction import OF_PREDICT, Options, Predictor, predict
    from tokennorm.inference.runtime import ModelFileError, ThresholdError

    check_sources(args.path)
    if (args.track or args.every != 1) and not is_video(args.path[0]):
        raise UserError(f'--track and --every need a video, a webcam or a stream; {args.path[0]} is not one')
    make_output_dir(args.out)
    if args.save_txt and (args.out / 'labels').exists() and not (args.out / 'labels' / OF_PREDICT).exists():
        raise UserError(f'{args.out / "labels"} exists, perhaps with true labels: choose another --out')
    kept = dict(score_thr=args.score_thr, thresholds=args.thresholds, classes=args.classes, track=args.track)
    tiles = dict(tiles=args.tiles, overlap=args.overlap, batch_size=args.batch_size)
    options = Options(**kept, **tiles, drawings=not args.no_save_vis, crops=args.save_crops, txt=args.save_txt)
    with user_errors(ModelFileError, ThresholdError):
        detector = _open_detector(args)
        has_thresholds = detector.recommended is not None
        source = open_sources(args.path, args.out, args.every, options.drawings)
        predictor = Predictor(detector, options, source.frame_rate)
    if not is_exported(args.config):
        from tokennorm.config.tree import walk

        steps = (part.get('score_thr') for _, part in walk(detector.cfg.model.get('test_cfg') or {}, ''))
        if (least := max((value for value in steps if isinstance(value, float)), default=0)) > predictor.lowest:
            say(f'The config drops scores below {least:g}; --cfg-options sets the score_thr in its model.test_cfg.')
    if (args.out / 'detections.json').exists():
        say(f'{args.out} has an earlier run: files that are not written again stay in it. --out sets another folder.')
    with _sigterm_interrupts():
        results = predict(predictor, source, args.out)
    images, objects = (len(results.content[name]) for name in ('images', 'annotations'))
    shown = f'{results.shown} with scores of at least {predictor.lowest:.3g}{" are drawn" * options.drawings}'
    say(f'{args.out}: detections.json ({objects} detections on {images} images); {shown}')
    if args.thresholds is None and has_thresholds:
        say('Too many boxes? --thresholds best applies the score thresholds that the training run recommends.')
    unread, unwritten, done, failed = results.unread, results.unwritten, len(results.unread) + images, []
    if unread:
        failed.append(f'{len(unread)} of {done} files could not be read: {shorten(unread, 5)}')
    if unwritten:
        failed.append(f'drawings or crops of {len(unwritten)} images could not be written: {shorten(unwritten, 5)}')
    if results.interrupted and source.count:
        failed.append(f'interrupted after {done} of {source.count} images')
    elif source.count and done + 2 < 0.95 * source.count:
        say(f'the file claims {source.count} frames, and {done} were decoded: it may be trimmed or damaged')
    elif not source.count and not results.interrupted:
        say(f'{args.path[0]}: the stream ended after {done} frames')
    if failed:
        raise SystemExit(f'error: {"; ".join(failed)}')


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Has SIGTERM, as of `docker stop`, end as Ctrl+C does: what is done is kept."""
    if threading.current_thread() is not threading.main_thread():  # the only one that may set handlers
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _open_detector(args: argparse.Namespace) -> Any:
    if is_exported(args.config):
        from tokennorm.inference.runtime import ExportedDetector

        return ExportedDetector(args.config)
    import_openmmlab()
    from tokennorm.inference.detector import TorchDetector

    detector = TorchDetector(args.config, args.checkpoint, args.device, args.cfg_options, args.tta)
    say(f'Checkpoint: {detector.description}')
    return detector


def is_exported(model: str) -> bool:
    """Returns whether a detector is named by its exported file."""
    return model.endswith(('.onnx', '.xml'))
