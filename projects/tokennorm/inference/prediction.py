"""What `tokennorm predict` does with a detector, in PyTorch or in an exported file. It needs no PyTorch itself."""

import json
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tokennorm.evaluation.thresholds import read_thresholds
from tokennorm.files import write_atomically
from tokennorm.inference.input_images import InputImages
from tokennorm.inference.runtime import BaseDetector, Detections, ImageError, draw
from tokennorm.inference.tiles import detect_in_tiles, tile_corners

_EVERY = 10  # seconds between two lines of progress in a file, and between two writings of the results


@dataclass
class Options:
    """Options of `tokennorm predict`."""

    score_thr: float = 0.3  # lowest score that is drawn
    thresholds: str | None = None  # 'best', a number or a file: lowest scores that are kept, and drawn
    tiles: int | None = None  # side in pixels
    overlap: float = 0.2  # of tiles
    batch_size: int = 1
    track: bool = False


class Predictor:
    """Applies tiles, thresholds and tracking to a detector's results.

    Attributes:
        lowest: The lowest score of a class that is drawn.
    """

    def __init__(self, detector: BaseDetector, options: Options, frame_rate: float | None = None) -> None:
        self.detector, self.options = detector, options
        self.kept = np.zeros(len(detector.classes))
        if options.thresholds == 'best':
            self.kept = detector.thresholds('best')
        elif options.thresholds is not None:
            self.kept = np.array(read_thresholds(options.thresholds, '', detector.classes))
        self.lowest = options.score_thr if options.thresholds is None else self.kept.min()
        self.tracker: Any = None
        if options.track:
            from tokennorm.inference.tracking import Tracker

            self.tracker = Tracker(frame_rate or 1.0, self.lowest)

    def __call__(self, images: list[np.ndarray]) -> list[Detections | ImageError]:
        """Returns the detections on each image (H, W, 3) uint8 BGR, or why there are none."""
        try:
            found = self._detect(images)
        except ImageError as error:
            return [error] if len(images) == 1 else [self([image])[0] for image in images]
        if self.tracker is not None:
            found = [self.tracker.update(one) for one in found]
        return [one.select(one.scores >= self.kept[one.labels]) for one in found]

    def _detect(self, images: list[np.ndarray]) -> list[Detections]:
        options = self.options
        if options.tiles is None:
            return self.detector.detect(images, options.batch_size)
        tiling = options.tiles, options.overlap, options.batch_size
        return [detect_in_tiles(self.detector, image, *tiling) for image in images]


class Results:
    """Detections in COCO's format, written to `detections.json` as they come: every 10 seconds, and at the end."""

    def __init__(self, path: Path, detector: BaseDetector) -> None:
        self.path, self.category_ids = path, detector.category_ids
        pairs = zip(detector.category_ids, detector.classes, strict=True)
        self.content: dict[str, list[dict[str, Any]]] = dict(images=[], annotations=[])
        self.content['categories'] = [dict(id=i, name=name) for i, name in pairs]
        self.due = time.monotonic() + _EVERY

    def add(self, name: str, image: np.ndarray, found: Detections) -> None:
        """Adds an image (H, W, 3) and its detections."""
        images, annotations = self.content['images'], self.content['annotations']
        images.append(dict(id=len(images) + 1, file_name=name, width=image.shape[1], height=image.shape[0]))
        for one in found.annotations(self.category_ids):
            annotations.append(dict(id=len(annotations) + 1, image_id=len(images)) | one)
        if time.monotonic() > self.due:
            self.write()

    def write(self) -> None:
        """Writes what there is so far."""
        begin = time.monotonic()
        write_atomically(self.path, json.dumps(self.content).encode())
        end = time.monotonic()
        self.due = end + max(_EVERY, 20 * (end - begin))  # large files do not cost more than 5% of the time


class Drawings:
    """Writes drawn images under their names, or the frames of a video into a video.

    An image in a format that cannot hold its colors, such as .pgm, is written as .png, with that suffix in addition.
    """

    def __init__(self, out: Path, frame_rate: float | None) -> None:
        self.out = out
        self.frame_rate = frame_rate
        self.failed: list[str] = []
        self.writer: Any = None

    def add(self, name: str, image: np.ndarray) -> None:
        """Writes an image (H, W, 3) uint8 BGR, or adds its name to `failed`."""
        written = self._write_image(self.out / 'vis' / name, image) if self.frame_rate is None else self._add(image)
        if not written:
            self.failed.append(name)

    def close(self) -> None:
        """Closes the video; before that it cannot be played."""
        if self.writer is not None:
            self.writer.release()

    def _write_image(self, path: Path, image: np.ndarray) -> bool:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _imwrite(path, image) or _imwrite(path.with_name(f'{path.name}.png'), image)

    def _add(self, image: np.ndarray) -> bool:
        if self.writer is None:
            code, path = cv2.VideoWriter.fourcc(*'mp4v'), self.out / 'detections.mp4'
            self.writer = cv2.VideoWriter(str(path), code, self.frame_rate, image.shape[1::-1])
        self.writer.write(image)
        return self.writer.isOpened()


@dataclass
class Outcome:
    """What became of the images: numbers, and the names of those that failed, with the reason where it is known."""

    images: int
    detections: int
    shown: int  # with at least the lowest score that is drawn
    unread: list[str]
    undrawn: list[str]
    interrupted: bool


def predict(predictor: Predictor, source: InputImages, out: Path, with_drawings: bool = True) -> Outcome:
    """Detects objects in images, and writes `detections.json` and drawings into a folder.

    What is done is kept when the user interrupts, and when an error ends the run.
    """
    results = Results(out / 'detections.json', predictor.detector)
    drawings = Drawings(out, source.frame_rate) if with_drawings else None
    unread: list[str] = []
    progress = _Progress(source.count)
    interrupted = False
    images, annotations = results.content['images'], results.content['annotations']
    try:
        for batch in iter(lambda: list(islice(source.images, predictor.options.batch_size)), []):
            unread += [name for name, image in batch if image is None]
            readable = [(name, image) for name, image in batch if image is not None]
            if predictor.options.tiles is not None and readable and not images:
                _print_tiles(readable[0][1], predictor.options)
            for (name, image), found in zip(readable, predictor([image for _, image in readable]), strict=True):
                if isinstance(found, ImageError):
                    unread.append(f'{name} ({found})')
                    continue
                results.add(name, image, found)
                if drawings is not None:
                    drawings.add(name, draw(image, found.select(found.scores >= predictor.lowest)))
            progress.show(len(images) + len(unread))
    except KeyboardInterrupt:  # the end of a webcam or a stream
        interrupted = True
    finally:
        progress.close()
        results.write()
        if drawings is not None:
            drawings.close()
    shown = sum(one['score'] >= round(float(predictor.lowest), 5) for one in annotations)
    return Outcome(
        len(images), len(annotations), shown, unread, [] if drawings is None else drawings.failed, interrupted
    )


def _print_tiles(image: np.ndarray, options: Options) -> None:
    height, width = image.shape[:2]
    count = len(tile_corners(height, width, options.tiles, options.overlap))
    print(f'{count:,} tiles of {options.tiles} x {options.tiles} pixels for an image of {width} x {height}', flush=True)


def _imwrite(path: Path, image: np.ndarray) -> bool:
    try:
        return cv2.imwrite(str(path), image)
    except cv2.error:  # a format that OpenCV cannot write
        return False


class _Progress:
    """The number of images that are done: on a terminal in one line, in a file every 10 seconds."""

    def __init__(self, count: int) -> None:
        self.of_all = f' of {count}' if count else ''
        self.terminal = sys.stdout.isatty()
        self.due = time.monotonic() + _EVERY
        self.done = self.shown = 0

    def show(self, done: int) -> None:
        self.done = done
        if self.terminal or time.monotonic() > self.due:
            self._print()

    def close(self) -> None:
        if self.shown != self.done:
            self._print()
        if self.terminal:
            print()

    def _print(self) -> None:
        text = f'{self.done}{self.of_all} images'
        print(f'\r{text}' if self.terminal else text, end='' if self.terminal else '\n', flush=True)
        self.shown, self.due = self.done, time.monotonic() + _EVERY
