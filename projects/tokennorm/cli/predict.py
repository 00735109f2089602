"""Detects objects in an image, a folder of images or a video."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tokennorm.cli.command import command, make_parser
from tokennorm.engine.arguments import add_options_argument

if TYPE_CHECKING:
    import mmcv
    import numpy as np
    from mmdet.apis import DetInferencer


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument('config', help='config file, or the name of a config')
    parser.add_argument(
        'checkpoint', help='checkpoint of a training run with that config, on any data, or its work directory'
    )
    parser.add_argument('path', type=Path, help='image, folder of images, or video')
    parser.add_argument(
        '--out', type=Path, default=Path('work_dirs/predict'), help='output folder; default: work_dirs/predict'
    )
    parser.add_argument(
        '--score-thr', type=float, default=0.3, help='lowest score that is drawn; the json has all detections'
    )
    parser.add_argument('--batch-size', type=int, default=1, metavar='N', help='images per forward pass')
    parser.add_argument('--device', help='such as cuda:0 or cpu; default: the best one available')
    parser.add_argument('--no-pictures', action='store_true', help='write the json only')
    add_options_argument(parser)
    return parser.parse_args(argv)


@command
def main(argv: list[str]) -> None:
    args = parse_args(argv)
    inferencer = open_detector(args)
    from mmengine.utils import ProgressBar

    from tokennorm.engine.output_dir import make_output_dir
    from tokennorm.engine.prediction import CocoDetections, draw_detections

    images, count, video = open_input(args.path, args.out)
    try:
        make_output_dir(args.out)
    except ValueError as error:
        raise SystemExit(f'error: --out: {error}') from None
    pictures = None if args.no_pictures else Pictures(args.out, video)
    detections = CocoDetections(inferencer.model.dataset_meta)
    bar = ProgressBar(count)
    unread = []
    try:
        for batch in batches(images, args.batch_size):
            unread += [name for name, image in batch if image is None]
            readable = [(name, image) for name, image in batch if image is not None]
            arrays = [image for _, image in readable]
            samples = inferencer(arrays, len(arrays), return_datasamples=True)['predictions'] if arrays else []
            for (name, image), sample in zip(readable, samples, strict=True):
                detections.add(name, image, sample)
                if pictures is not None:
                    pictures.add(name, draw_detections(inferencer, image, sample, args.score_thr))
            bar.update(len(batch))
    finally:  # an interruption keeps what is done
        detections.write(args.out / 'detections.json')
        if pictures is not None:
            pictures.close()
    print(f'\n{args.out}: detections.json ({len(detections.annotations)} on {len(detections.images)} images)')
    if unread:
        raise SystemExit(f'error: {len(unread)} files could not be read: {", ".join(unread[:5])}')


def open_detector(args: argparse.Namespace) -> 'DetInferencer':
    """Returns mmdet's inferencer of the config and the checkpoint, after checks of the arguments."""
    import torch

    from tokennorm.checkpoints import find_checkpoint
    from tokennorm.engine.check_env import require_mmcv_ops
    from tokennorm.engine.prediction import build_inferencer
    from tokennorm.engine.runner import read_config, use_options

    if not args.path.exists():
        raise SystemExit(f'error: {args.path} not found')
    if args.batch_size < 1:
        raise SystemExit(f'error: --batch-size {args.batch_size} must be at least 1')
    if args.device is not None and args.device.startswith('cuda') and not torch.cuda.is_available():
        raise SystemExit(f'error: --device {args.device}: PyTorch finds no GPU')
    try:
        require_mmcv_ops()
        cfg = read_config(args.config)
        use_options(cfg, args.cfg_options)
        if cfg.get('default_scope') != 'mmdet':
            raise SystemExit(f'error: {args.config} is not a detector config')
        return build_inferencer(cfg, find_checkpoint(args.checkpoint), args.device)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise SystemExit(f'error: {error}') from None


def open_input(path: Path, out: Path) -> 'tuple[Iterator[tuple[str, np.ndarray | None]], int, mmcv.VideoReader | None]':
    """Returns names with their images, their count, and the video if the input is one."""
    import mmcv

    from tokennorm.engine.prediction import IMAGE_SUFFIXES, list_images, read_images

    if path.is_dir() or path.suffix.lower() in IMAGE_SUFFIXES:
        folder, names = list_images(path, leave_out=out)
        if not names:
            raise SystemExit(f'error: {folder} has no images ({", ".join(IMAGE_SUFFIXES)})')
        return read_images(folder, names), len(names), None
    video = mmcv.VideoReader(str(path))
    if not video.opened or not len(video):
        raise SystemExit(f'error: {path} is neither a readable video nor an image ({", ".join(IMAGE_SUFFIXES)})')
    return ((f'{path.stem}/{i:06d}', frame) for i, frame in enumerate(video)), len(video), video


def batches(items: Iterator, size: int) -> Iterator[list]:
    """Yields lists of `size` items; the last one may be shorter."""
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class Pictures:
    """Writes drawn images under their names, or the frames of a video into a video."""

    def __init__(self, out: Path, video: 'mmcv.VideoReader | None') -> None:
        import cv2

        self.cv2 = cv2
        self.out = out
        self.writer = None
        if video is not None:
            fourcc = cv2.VideoWriter.fourcc(*'mp4v')
            self.writer = cv2.VideoWriter(str(out / 'detections.mp4'), fourcc, video.fps or 25, video.resolution)

    def add(self, name: str, image: 'np.ndarray') -> None:
        """Writes an image (H, W, 3) uint8 BGR."""
        if self.writer is not None:
            self.writer.write(image)
            return
        path = self.out / 'pictures' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self.cv2.imwrite(str(path), image)

    def close(self) -> None:
        """Closes the video; before that it cannot be played."""
        if self.writer is not None:
            self.writer.release()


if __name__ == '__main__':
    main()
