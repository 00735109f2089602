"""Detects objects in images, a video, a webcam or a stream.

With an exported file, `tokennorm predict MODEL.onnx PATH`, it needs onnxruntime and not PyTorch.

examples:
  tokennorm predict WORK_DIR IMAGES --thresholds best
  tokennorm predict CONFIG CHECKPOINT VIDEO --track --every 2
  tokennorm predict MODEL.onnx IMAGES
"""

import argparse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, use_detector
from tokennorm.cli.command import IMPORTING, command, make_parser
from tokennorm.files import make_output_dir
from tokennorm.messages import shorten, user_errors

if TYPE_CHECKING:
    import numpy as np
    from mmdet.apis import DetInferencer
    from mmdet.structures import DetDataSample


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = make_parser(__doc__)
    add_detector_arguments(parser)
    parser.add_argument(
        'path',
        nargs='+',
        metavar='PATH',
        help='image files, a folder of images, a video, the index of a webcam (0) or the URL of a stream (rtsp://...)',
    )
    output, detection, video = map(parser.group, ('output', 'detection', 'video'))
    output.add_argument(
        '--out', type=Path, default=Path('work_dirs/predict'), help='output folder; default: work_dirs/predict'
    )
    output.add_argument(
        '--score-thr',
        type=float,
        default=0.3,
        help='lowest score that is drawn; the json has all detections; default: 0.3',
    )
    output.add_argument(
        '--thresholds',
        metavar='best|NUMBER|FILE',
        help='keep detections, in the json too, from this score on: best for the thresholds of each class that the '
        "training run's report recommends, a number, or a thresholds.json",
    )
    detection.add_argument('--batch-size', type=int, default=1, metavar='N', help='images per forward pass; default: 1')
    detection.add_argument('--device', help='such as cuda:0 or cpu; default: the best one available')
    output.add_argument('--no-save-vis', action='store_true', help='write detections.json only')
    detection.add_argument(
        '--tiles', type=int, metavar='S', help='detect on tiles of S x S pixels, for small objects in large images'
    )
    detection.add_argument(
        '--overlap', type=float, default=0.2, help='fraction of a tile that it shares with the next; default: 0.2'
    )
    video.add_argument(
        '--track', action='store_true', help='video only: give objects ids across frames (needs the package trackers)'
    )
    video.add_argument('--every', type=int, default=1, metavar='N', help='video only: use every Nth frame; default: 1')
    add_options_argument(parser)
    args = parser.parse_args(argv)
    use_detector(args, following='path')
    return args


@command
def main(argv: list[str]) -> None:
    if argv and argv[0].endswith(('.onnx', '.xml')):
        from tokennorm.export.runtime import main as predict_with_exported

        predict_with_exported([word for word in argv if word != '--traceback'])
        return
    if argv and argv[0].endswith('.pt2'):
        raise SystemExit(
            f'error: {argv[0]}: only .onnx and .xml files can be run here; load a .pt2 file with torch.export.load'
        )
    args = parse_args(argv)
    check_arguments(args)
    with user_errors(ValueError, where='--out: '):
        make_output_dir(args.out)
    print(IMPORTING, flush=True)
    from mmengine.utils import ProgressBar

    from tokennorm.checkpoints.reading import describe_checkpoint
    from tokennorm.inference.input_images import open_sources
    from tokennorm.inference.prediction import CocoDetections, draw_detections, open_detector
    from tokennorm.inference.tracking import Tracker, draw_tracks
    from tokennorm.thresholds import NAME, read_thresholds

    with user_errors(ImportError, OSError, RuntimeError, ValueError):
        inferencer, _, args.checkpoint = open_detector(args.config, args.checkpoint, args.device, args.cfg_options)
        print(f'Checkpoint: {describe_checkpoint(args.checkpoint)}', flush=True)
    if args.thresholds is not None:
        with user_errors(ValueError, where='--thresholds: '):
            thresholds = read_thresholds(args.thresholds, args.checkpoint, inferencer.model.dataset_meta['classes'])
        args.score_thr = min(thresholds)  # all that is kept is drawn
    with user_errors(ValueError, ImportError):
        source = open_sources(args.path, args.out, args.every)
        tracker = Tracker(source.frame_rate, args.score_thr) if args.track else None
    drawings = None if args.no_save_vis else Drawings(args.out, source.frame_rate)
    detections = CocoDetections(inferencer.model.dataset_meta)
    bar = ProgressBar(source.count)
    unread = []
    interrupted = False
    with user_errors(OSError):
        try:
            for batch in iter(lambda: list(islice(source.images, args.batch_size)), []):
                unread += [name for name, image in batch if image is None]
                readable = [(name, image) for name, image in batch if image is not None]
                samples = detect(inferencer, [image for _, image in readable], args)
                for (name, image), sample in zip(readable, samples, strict=True):
                    if sample is None:
                        unread.append(f'{name} (too narrow to resize)')
                        continue
                    if tracker is not None:
                        tracker.update(sample)
                    if args.thresholds is not None:
                        found = sample.pred_instances
                        sample.pred_instances = found[found.scores >= found.scores.new_tensor(thresholds)[found.labels]]
                    detections.add(name, image, sample)
                    if drawings is not None:
                        image = draw_detections(inferencer, image, sample, args.score_thr)
                        drawings.add(name, draw_tracks(image, sample, args.score_thr) if args.track else image)
                bar.update(len(batch))
        except KeyboardInterrupt:  # the end of a webcam or a stream; otherwise what is done is kept
            interrupted = True
        finally:
            print()  # ends the line of the progress bar
            if drawings is not None:
                drawings.close()
        if unread and not detections.images and not interrupted:
            raise SystemExit(f'error: none of the {len(unread)} files could be read: {shorten(unread, 5)}')
        detections.write(args.out / 'detections.json')
    count = sum(annotation['score'] >= args.score_thr for annotation in detections.annotations)
    drawn = '' if drawings is None else f'; {count} drawn, with scores of at least {args.score_thr:.3g}'
    counts = f'{len(detections.annotations)} detections on {len(detections.images)} images'
    print(f'{args.out}: detections.json ({counts}){drawn}')
    if args.thresholds is None and Path(args.checkpoint).with_name(NAME).is_file():
        print('Too many boxes? --thresholds best applies the score thresholds that the training run recommends.')
    if interrupted and source.count:
        raise SystemExit(f'error: interrupted after {bar.completed} of {source.count} images')
    if unread:
        count = len(unread) + len(detections.images)
        raise SystemExit(f'error: {len(unread)} of {count} files could not be read: {shorten(unread, 5)}')


def check_arguments(args: argparse.Namespace) -> None:
    """Raises SystemExit for arguments that cannot work, before PyTorch is imported."""
    from tokennorm.inference.input_images import check_sources, is_video

    with user_errors(ValueError):
        check_sources(args.path)
    if not 0 <= args.score_thr <= 1:
        raise SystemExit(f'error: --score-thr {args.score_thr} must be from 0 to 1')
    for name in ('batch_size', 'every', 'tiles'):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise SystemExit(f'error: --{name.replace("_", "-")} {value} must be at least 1')
    if not 0 <= args.overlap < 1:
        raise SystemExit(f'error: --overlap {args.overlap} must be at least 0 and below 1')
    if (args.track or args.every != 1) and not is_video(args.path[0]):
        raise SystemExit(f'error: --track and --every need a video, a webcam or a stream; {args.path[0]} is not one')


def detect(
    inferencer: 'DetInferencer', images: 'list[np.ndarray]', args: argparse.Namespace
) -> 'list[DetDataSample | None]':
    """Returns the detections on each image, on its tiles if the arguments say so; None for one too thin to resize."""
    import cv2

    from tokennorm.inference.tiles import detect_in_tiles

    try:
        if args.tiles is not None:
            return [detect_in_tiles(inferencer, image, args.tiles, args.overlap, args.batch_size) for image in images]
        return inferencer(images, len(images), return_datasamples=True)['predictions'] if images else []
    except cv2.error:
        return [None] if len(images) == 1 else [detect(inferencer, [image], args)[0] for image in images]


class Drawings:
    """Writes drawn images under their names, or the frames of a video into a video."""

    def __init__(self, out: Path, frame_rate: float | None) -> None:
        self.out = out
        self.frame_rate = frame_rate
        self.writer: Any = None

    def add(self, name: str, image: 'np.ndarray') -> None:
        """Writes an image (H, W, 3) uint8 BGR; raises an OSError if it cannot be written."""
        import cv2

        if self.frame_rate is None:
            path = self.out / 'vis' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            written = cv2.imwrite(str(path), image)
        else:
            path = self.out / 'detections.mp4'
            if self.writer is None:
                code = cv2.VideoWriter.fourcc(*'mp4v')
                self.writer = cv2.VideoWriter(str(path), code, self.frame_rate, image.shape[1::-1])
            written = self.writer.isOpened()
            self.writer.write(image)
        if not written:
            raise OSError(
                f'{path} could not be written: the disk is full, or OpenCV has no encoder for it; --no-save-vis writes '
                'the json only'
            )

    def close(self) -> None:
        """Closes the video; before that it cannot be played."""
        if self.writer is not None:
            self.writer.release()
