"""Detects objects in images, a video, a webcam or a stream.

With an exported file it needs onnxruntime or openvino, and not PyTorch.

examples:
  tokennorm predict WORK_DIR IMAGES --thresholds best
  tokennorm predict CONFIG CHECKPOINT VIDEO --track --every 2
  tokennorm predict MODEL.onnx IMAGES
"""

import argparse
from pathlib import Path
from typing import Any

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, use_detector
from tokennorm.cli.command import Parser, command, fraction, import_openmmlab, positive_integer
from tokennorm.files import make_output_dir
from tokennorm.messages import UserError, shorten, user_errors


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(__doc__)
    add_detector_arguments(parser)
    parser.add_argument(
        'path',
        nargs='+',
        metavar='PATH',
        help='image files, a folder of images, a video, the index of a webcam (0) or the URL of a stream (rtsp://...)',
    )
    output, detection, video = map(parser.add_argument_group, ('output', 'detection', 'video'))
    output.add_argument(
        '--out', type=Path, default=Path('work_dirs/predict'), help='output folder; default: work_dirs/predict'
    )
    output.add_argument(
        '--score-thr',
        type=fraction,
        default=0.3,
        help='lowest score that is drawn; the json has all detections; default: 0.3',
    )
    output.add_argument(
        '--thresholds',
        metavar='best|NUMBER|FILE',
        help='keep detections, in the json too, from this score on: best for the thresholds of each class that the '
        "training run's report recommends, a number, or a thresholds.json",
    )
    output.add_argument('--no-save-vis', action='store_true', help='write detections.json only')
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
    if args.device or args.cfg_options:
        parser.error(f'{args.config}: an exported file takes no --device or --cfg-options')
    if args.checkpoint is not None:  # argparse takes the first of several paths for it
        args.path.insert(0, args.checkpoint)
    return args


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    from tokennorm.inference.input_images import check_sources, is_video, open_sources
    from tokennorm.inference.prediction import Options, Predictor, predict
    from tokennorm.inference.runtime import ModelFileError

    check_sources(args.path)
    if (args.track or args.every != 1) and not is_video(args.path[0]):
        raise UserError(f'--track and --every need a video, a webcam or a stream; {args.path[0]} is not one')
    make_output_dir(args.out)
    options = Options(args.score_thr, args.thresholds, args.tiles, args.overlap, args.batch_size, args.track)
    with user_errors(ModelFileError):
        detector = _open_detector(args)
        source = open_sources(args.path, args.out, args.every)
        predictor = Predictor(detector, options, source.frame_rate)
    outcome = predict(predictor, source, args.out, not args.no_save_vis)
    drawn = '' if args.no_save_vis else f'; {outcome.shown} drawn, with scores of at least {predictor.lowest:.3g}'
    print(f'{args.out}: detections.json ({outcome.detections} detections on {outcome.images} images){drawn}')
    if args.thresholds is None and detector.has_thresholds:
        print('Too many boxes? --thresholds best applies the score thresholds that the training run recommends.')
    done = len(outcome.unread) + outcome.images
    failed = [f'{len(outcome.unread)} of {done} files could not be read: {shorten(outcome.unread, 5)}'] * bool(
        outcome.unread
    )
    if outcome.undrawn:
        failed.append(f'{len(outcome.undrawn)} drawings could not be written: {shorten(outcome.undrawn, 5)}')
    if outcome.interrupted and source.count:
        failed.append(f'interrupted after {done} of {source.count} images')
    if failed:
        raise SystemExit(f'error: {"; ".join(failed)}')


def _open_detector(args: argparse.Namespace) -> Any:
    if is_exported(args.config):
        from tokennorm.inference.runtime import ExportedDetector

        return ExportedDetector(args.config)
    import_openmmlab()
    from tokennorm.inference.detector import TorchDetector

    detector = TorchDetector(args.config, args.checkpoint, args.device, args.cfg_options)
    print(f'Checkpoint: {detector.description}', flush=True)
    return detector


def is_exported(model: str) -> bool:
    """Returns whether a detector is named by its exported file."""
    return model.endswith(('.onnx', '.xml'))
