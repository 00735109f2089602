"""Detects objects on an image, a folder of images or a video: `python tools/predict.py CONFIG CHECKPOINT PATH`."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import cv2
import mmcv
import numpy as np
import torch
from mmengine.utils import ProgressBar

from tokennorm.checkpoints import find_checkpoint
from tokennorm.engine.check_env import require_mmcv_ops
from tokennorm.engine.output_dir import make_output_dir
from tokennorm.engine.prediction import (
    IMAGE_SUFFIXES,
    CocoDetections,
    build_inferencer,
    draw_detections,
    list_images,
    read_images,
)
from tokennorm.engine.runner import read_config, use_options
from tokennorm.engine.runner.options import ConfigOptions


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', type=Path, help='config file')
    parser.add_argument(
        'checkpoint', help='checkpoint of a training with that config, on whatever data, or its work folder'
    )
    parser.add_argument('path', type=Path, help='image, folder of images, or video')
    parser.add_argument(
        '--out',
        type=Path,
        default=Path('work_dirs/predict'),
        help='folder for what is written; default: work_dirs/predict',
    )
    parser.add_argument('--score-thr', type=float, default=0.3, help='least score of what is drawn; the json has all')
    parser.add_argument('--batch-size', type=int, default=1, metavar='N', help='images at a time')
    parser.add_argument('--device', help='such as cuda:0 or cpu; default: the best there is')
    parser.add_argument('--no-pictures', action='store_true', help='write the json alone')
    parser.add_argument('--cfg-options', nargs='+', action=ConfigOptions, help='entries of the config, as key=value')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    for path in (args.config, args.path):
        if not path.exists():
            raise SystemExit(f'error: {path} is not there')
    if args.batch_size < 1:
        raise SystemExit(f'error: --batch-size {args.batch_size} must be at least 1')
    if args.device is not None and args.device.startswith('cuda') and not torch.cuda.is_available():
        raise SystemExit(f'error: --device {args.device}: PyTorch sees no GPU')
    try:
        require_mmcv_ops()
        cfg = read_config(args.config)
        use_options(cfg, args.cfg_options)
        if cfg.get('default_scope') != 'mmdet':
            raise SystemExit(f'error: {args.config} is no config of a detector')
        inferencer = build_inferencer(cfg, find_checkpoint(args.checkpoint), args.device)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise SystemExit(f'error: {error}') from None

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


def open_input(path: Path, out: Path) -> tuple[Iterator[tuple[str, np.ndarray | None]], int, mmcv.VideoReader | None]:
    """Names with their images, how many there are, and the video where it is one."""
    if path.is_dir() or path.suffix.lower() in IMAGE_SUFFIXES:
        folder, names = list_images(path, leave_out=out)
        if not names:
            raise SystemExit(f'error: {folder} has no images ({", ".join(IMAGE_SUFFIXES)})')
        return read_images(folder, names), len(names), None
    video = mmcv.VideoReader(str(path))
    if not video.opened or not len(video):
        raise SystemExit(f'error: {path} is no readable video, and no image ({", ".join(IMAGE_SUFFIXES)})')
    return ((f'{path.stem}/{i:06d}', frame) for i, frame in enumerate(video)), len(video), video


def batches(items: Iterator, size: int) -> Iterator[list]:
    """Lists of `size` items; the last one may be shorter."""
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class Pictures:
    """Writes drawn images under their names, or the frames of a video into one."""

    def __init__(self, out: Path, video: mmcv.VideoReader | None) -> None:
        self.out = out
        self.writer = None
        if video is not None:
            fourcc = cv2.VideoWriter.fourcc(*'mp4v')
            self.writer = cv2.VideoWriter(str(out / 'detections.mp4'), fourcc, video.fps or 25, video.resolution)

    def add(self, name: str, image: np.ndarray) -> None:
        """Writes an image (H, W, 3) uint8 BGR."""
        if self.writer is not None:
            self.writer.write(image)
            return
        path = self.out / 'pictures' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), image)

    def close(self) -> None:
        """Ends the video, which cannot be played before."""
        if self.writer is not None:
            self.writer.release()


if __name__ == '__main__':
    main()
