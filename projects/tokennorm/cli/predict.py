"""Detects objects in images, a video, a webcam or a stream.

With an exported file it needs onnxruntime or openvino, and not PyTorch.

examples:
  tokennorm predict WORK_DIR IMAGES --thresholds best
  tokennorm predict CONFIG CHECKPOINT VIDEO --track --every 2
  tokennorm predict MODEL.onnx IMAGES
"""

import argparse
import json
from itertools import islice
from pathlib import Path
from typing import Any

from tokennorm.cli.arguments import add_detector_arguments, add_options_argument, use_detector
from tokennorm.cli.command import IMPORTING, Parser, command, fraction, positive_integer
from tokennorm.files import make_output_dir, write_atomically
from tokennorm.messages import shorten, user_errors


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
    if args.tiles or args.track or args.device or args.cfg_options:
        parser.error(f'{args.config}: an exported file takes no --tiles, --track, --device or --cfg-options')
    if args.checkpoint is not None:  # argparse takes the first of several paths for it
        args.path.insert(0, args.checkpoint)
    return args


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    from tokennorm.inference.input_images import check_sources, is_video, open_sources

    with user_errors(ValueError):
        check_sources(args.path)
        if (args.track or args.every != 1) and not is_video(args.path[0]):
            raise ValueError(f'--track and --every need a video, a webcam or a stream; {args.path[0]} is not one')
    make_output_dir(args.out)
    with user_errors(ImportError, OSError, RuntimeError, ValueError):
        if is_exported(args.config):
            model = Exported(args)
        else:
            print(IMPORTING, flush=True)
            from tokennorm.inference.prediction import Trained

            detector = args.config, args.checkpoint, args.device, args.cfg_options
            model = Trained(*detector, args.score_thr, args.thresholds, args.tiles, args.overlap, args.batch_size)
        source = open_sources(args.path, args.out, args.every)
        if args.track:
            model.track(source.frame_rate)
    drawings = None if args.no_save_vis else Drawings(args.out, source.frame_rate)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    unread = []
    interrupted = False
    with user_errors(OSError):
        try:
            for batch in iter(lambda: list(islice(source.images, args.batch_size)), []):
                unread += [name for name, image in batch if image is None]
                readable = [(name, image) for name, image in batch if image is not None]
                for (name, image), found in zip(readable, model.detect([image for _, image in readable]), strict=True):
                    if found is None:
                        unread.append(f'{name} (too narrow to resize)')
                        continue
                    images.append(dict(id=len(images) + 1, file_name=name, width=image.shape[1], height=image.shape[0]))
                    for one in model.annotations(found):
                        annotations.append(dict(id=len(annotations) + 1, image_id=len(images)) | one)
                    if drawings is not None:
                        drawings.add(name, model.draw(image, found))
                of_all = f' of {source.count}' if source.count else ''
                print(f'\r{len(images) + len(unread)}{of_all} images', end='', flush=True)
        except KeyboardInterrupt:  # the end of a webcam or a stream; otherwise what is done is kept
            interrupted = True
        finally:
            print()
            if drawings is not None:
                drawings.close()
        categories = [dict(id=i, name=name) for i, name in zip(model.category_ids, model.classes, strict=True)]
        content = dict(images=images, annotations=annotations, categories=categories)
        write_atomically(args.out / 'detections.json', json.dumps(content).encode())
    count = sum(one['score'] >= model.lowest for one in annotations)
    drawn = '' if drawings is None else f'; {count} drawn, with scores of at least {model.lowest:.3g}'
    print(f'{args.out}: detections.json ({len(annotations)} detections on {len(images)} images){drawn}')
    if args.thresholds is None and model.has_thresholds:
        print('Too many boxes? --thresholds best applies the score thresholds that the training run recommends.')
    done = len(unread) + len(images)
    if interrupted and source.count:
        raise SystemExit(f'error: interrupted after {done} of {source.count} images')
    if unread:
        raise SystemExit(f'error: {len(unread)} of {done} files could not be read: {shorten(unread, 5)}')


def is_exported(model: str) -> bool:
    """Returns whether a detector is named by its exported file."""
    return model.endswith(('.onnx', '.xml'))


class Exported:
    """An exported file, with the methods of `inference.prediction.Trained`."""

    has_thresholds = False

    def __init__(self, args: argparse.Namespace) -> None:
        from tokennorm.evaluation.thresholds import read_thresholds
        from tokennorm.inference import runtime

        self.runtime = runtime
        self.detector = runtime.ExportedDetector(args.config)
        self.classes, self.category_ids = self.detector.classes, self.detector.metadata['category_ids']
        self.kept = args.thresholds or 0.0
        if self.kept != 'best':
            self.kept = read_thresholds(self.kept, args.config, self.classes)
        self.lowest = min(self.detector.thresholds(self.kept if args.thresholds else args.score_thr))

    def detect(self, images: list[Any]) -> list[Any]:
        return self.detector([image[..., ::-1] for image in images], self.kept)

    def annotations(self, found: Any) -> list[dict[str, Any]]:
        return self.runtime.coco_annotations(found, self.category_ids)

    def draw(self, image: Any, found: Any) -> Any:
        return self.runtime.draw(image[..., ::-1], found, self.classes, self.lowest)[..., ::-1]


class Drawings:
    """Writes drawn images under their names, or the frames of a video into a video."""

    def __init__(self, out: Path, frame_rate: float | None) -> None:
        self.out = out
        self.frame_rate = frame_rate
        self.writer: Any = None

    def add(self, name: str, image: Any) -> None:
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
            raise OSError(f'{path} could not be written; --no-save-vis writes the json only')

    def close(self) -> None:
        """Closes the video; before that it cannot be played."""
        if self.writer is not None:
            self.writer.release()
