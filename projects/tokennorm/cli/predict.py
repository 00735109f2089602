"""Detects objects in images, a video, a webcam or a stream.

With an exported file it needs onnxruntime or openvino, and not PyTorch.

examples:
  tokennorm predict WORK_DIR IMAGES --thresholds best
  tokennorm predict CONFIG CHECKPOINT VIDEO --track --every 2
  tokennorm predict MODEL.onnx IMAGES
"""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokennorm.base import fast_imports
from tokennorm.base.console import say
from tokennorm.cli.arguments import (
    add_detector_arguments,
    add_options_argument,
    add_training_options,
    add_work_dir,
    take_back,
)
from tokennorm.cli.command import INTERRUPTED, Parser, add_json, call, command, show
from tokennorm.commands.predict import predict


def build_parser() -> Parser:
    parser = Parser(__doc__)
    add_detector_arguments(parser, exported=True)
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
    add_work_dir(parser)
    output.add_argument(
        '--score-thr',
        type=float,
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
    detection.add_argument('--batch-size', type=int, default=1, metavar='N', help='images per forward pass; default: 1')
    detection.add_argument('--device', help='such as cuda:0 or cpu; default: the best one available')
    detection.add_argument(
        '--tiles',
        type=int,
        metavar='S',
        help='detect on tiles of S x S pixels, for small objects in large images',
    )
    detection.add_argument(
        '--overlap', type=float, default=0.2, help='fraction of a tile that it shares with the next; default: 0.2'
    )
    detection.add_argument(
        '--tta', action='store_true', help='test-time augmentation: merge the boxes of each image and its mirror image'
    )
    video.add_argument(
        '--track', action='store_true', help='video only: give objects ids across frames (needs the package trackers)'
    )
    video.add_argument('--every', type=int, default=1, metavar='N', help='video only: use every Nth frame; default: 1')
    add_training_options(parser, ('allow', 'strict'))
    add_options_argument(parser)
    add_json(parser)
    return parser


def parse_args(argv: list[str]) -> argparse.Namespace:
    args = build_parser().parse_args(argv)
    take_back(args, following='path')
    return args


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    fast_imports.defers = True
    with _sigterm_interrupts():
        result = call(predict, args)
    show(result, args)
    if result.problems:
        line = f'error: {"; ".join(result.problems)}'
        if result.interrupted:
            say(line, file=sys.stderr)
        raise SystemExit(INTERRUPTED if result.interrupted else line)


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
