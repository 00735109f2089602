"""What `tokennorm predict` does with a detector, in PyTorch or in an exported file. It needs no PyTorch itself."""

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tokennorm.base.console import over_last_line, say
from tokennorm.base.files import as_json, write_atomically
from tokennorm.base.messages import UserError, did_you_mean, shorten
from tokennorm.inference.input_images import DRAWN_VIDEO, InputImages
from tokennorm.inference.runtime import BaseDetector, Detections, ImageError
from tokennorm.inference.threads import THREADS, in_threads
from tokennorm.inference.tiles import detect_in_tiles, tile_corners

OF_PREDICT = '.of_predict'  # a file in `labels`, which are not true labels then
_LEAST = 0.05  # score; with lower ones detectors fill the number that they may give in any image
_EVERY = 10  # seconds between two lines of progress in a file, and between two writings of the results
_Shown = tuple[str, np.ndarray, Detections]  # name and pixels of an image, and what is drawn on it
_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|\x00-\x1f]|^\.+|[. ]+$')  # of folders, on any system


@dataclass
class Options:
    """Options of `tokennorm predict`."""

    score_thr: float | None = None  # lowest score that is drawn; 0.3, or, with thresholds, those
    thresholds: str | float | Path | None = None  # 'best', a number or a file: lowest scores that are kept, and drawn
    classes: list[str] = field(default_factory=list)  # names of those that are kept; none is all
    tiles: int | None = None  # side in pixels
    overlap: float = 0.2  # of tiles
    batch_size: int = 1
    track: bool = False
    drawings: bool = True
    crops: bool = False
    txt: bool = False


class Predictor:
    """Applies tiles, thresholds and tracking to a detector's results.

    Attributes:
        lowest: The lowest score of a class that is drawn.
        full: Number of images, or tiles, with as many detections as the detector gives, all with such a score.
    """

    def __init__(self, detector: BaseDetector, options: Options, frame_rate: float | None = None) -> None:
        self.detector, self.options = detector, options
        self.kept = detector.thresholds(0.0 if options.thresholds is None else options.thresholds)
        if unknown := [name for name in options.classes if name not in detector.classes]:
            meant = did_you_mean(unknown[0], detector.classes)
            raise UserError(f'--classes: no class {unknown[0]!r}{meant}; expected some of {shorten(detector.classes)}')
        if options.classes:
            self.kept = np.where(np.isin(detector.classes, options.classes), self.kept, np.inf)
        lowest = 0.3 if options.thresholds is None else 0.0
        self.lowest = max(lowest if options.score_thr is None else options.score_thr, self.kept.min())
        self.full = 0
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
        if options.tiles is not None:
            tiling = options.tiles, options.overlap, options.batch_size
            return [detect_in_tiles(self.detector, image, *tiling, self._count_full) for image in images]
        found = self.detector.detect(images, options.batch_size)
        self._count_full(found)
        return found

    def _count_full(self, found: Sequence[Detections]) -> None:
        most, least = self.detector.most_detections, max(self.lowest, _LEAST)
        self.full += sum(most is not None and len(one) >= most and one.scores.min() >= least for one in found)


class Results:
    """What was found, in a folder: `detections.json` in COCO's format, drawings or a video, crops, labels of YOLO.

    `detections.json` is written every 10 seconds and at the end.

    Attributes:
        content: That of `detections.json`.
        shown: Number of detections with at least the lowest score that is drawn.
        unread: Names of images that could not be read or used, with the reason where it is known.
        unwritten: Names of images whose drawing or crops could not be written.
        interrupted: Whether the user has interrupted the run.
    """

    def __init__(self, out: Path, predictor: Predictor, frame_rate: float | None) -> None:
        self.out, self.options, self.lowest, self.frame_rate = out, predictor.options, predictor.lowest, frame_rate
        self.category_ids = predictor.detector.category_ids
        pairs = zip(self.category_ids, predictor.detector.classes, strict=True)
        self.content: dict[str, list[dict[str, Any]]] = dict(images=[], annotations=[])
        self.content['categories'] = [dict(id=i, name=name) for i, name in pairs]
        self.shown, self.interrupted, self.video = 0, False, None
        self.unread: list[str] = []
        self.unwritten: list[str] = []
        self.labels: set[Path] = set()
        self.names: set[str] = set()
        self.due = time.monotonic() + _EVERY

    def add(self, name: str, image: np.ndarray, found: Detections, seconds: float | None = None) -> _Shown:
        """Adds an image (H, W, 3) uint8 BGR, with the time of a frame, and its detections.

        Returns what `write_images` takes.
        """
        images, annotations = self.content['images'], self.content['annotations']
        stem, suffix = os.path.splitext(name)
        numbered = (f'{stem}_{i}{suffix}' for i in count(2))
        name = next(one for one in chain([name], numbered) if one not in self.names)  # URLs may differ in their query
        self.names.add(name)
        images.append(dict(id=len(images) + 1, file_name=name, width=image.shape[1], height=image.shape[0]))
        if seconds is not None:
            images[-1]['time'] = round(seconds, 3)
        for one in found.annotations(self.category_ids):
            annotations.append(dict(id=len(annotations) + 1, image_id=len(images)) | one)
        shown = found.select(found.scores >= self.lowest)
        self.shown += len(shown)
        if self.options.txt:
            self._write_labels(name, image, shown)
        if time.monotonic() > self.due:
            self.write()
        return name, image, shown

    def write_images(self, shown: _Shown) -> None:
        """Writes the drawing and the crops of an image, also in several threads."""
        name, image, found = shown
        written = True
        if self.options.drawings:
            written = self._draw(name, found.draw(image, same_size=self.frame_rate is not None))
        if self.options.crops:
            written &= self._write_crops(name, image, found)
        if not written:
            self.unwritten.append(name)

    def write(self) -> None:
        """Writes `detections.json` with what there is so far."""
        begin = time.monotonic()
        write_atomically(self.out / 'detections.json', as_json(self.content).encode())
        end = time.monotonic()
        self.due = end + max(_EVERY, 20 * (end - begin))  # large files do not cost more than 5% of the time

    def close(self) -> None:
        """Writes `detections.json`, and ends the video, which cannot be played before."""
        self.write()
        if self.video is not None:
            self.video.release()

    def _draw(self, name: str, image: np.ndarray) -> bool:
        """Writes an image, as .png in addition where its format cannot hold colors, or the next frame of the video."""
        if self.frame_rate is None:
            path = self.out / 'vis' / name
            return _imwrite(path, image) or _imwrite(path.with_name(f'{path.name}.png'), image)
        if self.video is None:
            code, path = cv2.VideoWriter.fourcc(*'mp4v'), self.out / DRAWN_VIDEO
            self.video, self.size = cv2.VideoWriter(str(path), code, self.frame_rate, image.shape[1::-1]), image.shape
        self.video.write(image)  # OpenCV drops frames of another size, such as of a stream that changes it
        return self.video.isOpened() and image.shape == self.size

    def _write_crops(self, name: str, image: np.ndarray, shown: Detections) -> bool:
        written = True
        limits = np.array(image.shape[1::-1] * 2)
        boxes = np.clip(shown.boxes, 0, limits).round().astype(int)
        for i, (x1, y1, x2, y2) in enumerate(boxes):
            folder = self.out / 'crops' / _NOT_IN_NAMES.sub('_', shown.class_names[i])
            x1, y1 = min(x1, limits[0] - 1), min(y1, limits[1] - 1)  # of the smallest objects a pixel
            crop = image[y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)]
            written &= _imwrite(folder / f'{name}_{i + 1}.jpg', crop)
        return written

    def _write_labels(self, name: str, image: np.ndarray, shown: Detections) -> None:
        """Writes a line `class x y width height` per object, relative to the image, with the center of the box."""
        boxes = shown.boxes / np.array(image.shape[1::-1] * 2)
        centers = np.column_stack([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]])
        rows = zip(shown.labels.tolist(), centers.tolist(), strict=True)
        path = (self.out / 'labels' / name).with_suffix('.txt')
        if path in self.labels:  # of an image with another suffix
            path = path.with_name(f'{Path(name).name}.txt')
        self.labels.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        (self.out / 'labels' / OF_PREDICT).touch()
        path.write_text(
            ''.join(f'{label} {" ".join(f"{value:.6f}" for value in row)}\n' for label, row in rows), encoding='utf-8'
        )


def predict(predictor: Predictor, source: InputImages, out: Path) -> Results:
    """Detects objects in images, and writes what it finds into a folder.

    What is done is kept when the user interrupts, and when an error ends the run.
    """
    results = Results(out, predictor, source.frame_rate)
    progress = Progress(source.count)
    threads = THREADS if source.frame_rate is None else 1  # the frames of a video in their order
    try:
        for _ in in_threads(results.write_images, _detect(predictor, source, results, progress), threads):
            pass
    except KeyboardInterrupt:  # the end of a webcam or a stream
        results.interrupted = True
    finally:
        results.close()
        progress.close()
    return results


def _detect(predictor: Predictor, source: InputImages, results: Results, progress: 'Progress') -> Iterator[_Shown]:
    """Adds the detections on all images to the results; yields what is left to write."""
    images, unread = results.content['images'], results.unread
    for batch in iter(lambda: list(islice(source.images, predictor.options.batch_size)), []):
        unread += [f'{name} ({image})' for name, image in batch if isinstance(image, ImageError)]
        readable = [(name, image) for name, image in batch if not isinstance(image, ImageError)]
        if predictor.options.tiles is not None and readable and not images:
            _print_tiles(readable[0][1], predictor.options)
        for (name, image), found in zip(readable, predictor([image for _, image in readable]), strict=True):
            if isinstance(found, ImageError):
                unread.append(f'{name} ({found})')
            else:
                yield results.add(name, image, found, source.times.get(name))
        progress.show(len(images) + len(unread))


def uneven_times(times: Sequence[float], frame_rate: float) -> str:
    """Returns a line where frames are not at the times that a constant rate gives them; '' where they nearly are.

    So are those of phones, of recordings of a screen, and of a camera that is faster than the detector.
    """
    differences = np.abs(np.asarray(times) - np.arange(len(times)) / frame_rate)
    if not len(times) or not np.isfinite(differences).all() or differences.max() <= 0.5 + 0.01 * times[-1]:
        return ''
    return (
        f'the frames are not evenly spaced in time, and in {DRAWN_VIDEO} they are: it is up to {differences.max():.1f} '
        'seconds off; detections.json has the `time` of each'
    )


def _print_tiles(image: np.ndarray, options: Options) -> None:
    height, width = image.shape[:2]
    count = len(tile_corners(height, width, options.tiles, options.overlap))
    say(f'{count:,} tiles of {options.tiles} x {options.tiles} pixels for an image of {width} x {height}')


def _imwrite(path: Path, image: np.ndarray) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        ok, content = cv2.imencode(path.suffix, image)  # OpenCV's own writing crashes at names that are not UTF-8
        return ok and bool(path.write_bytes(content))
    except (cv2.error, OSError):  # a format that OpenCV cannot write; a file in the way of the folder
        return False


class Progress:
    """The number of images that are done: on a terminal in one line, in a file every 10 seconds."""

    def __init__(self, count: int) -> None:
        self.of_all = f' of {count}' if count else ''
        self.terminal = sys.stdout is not None and sys.stdout.isatty()
        self.due = time.monotonic() + _EVERY
        self.done = self.shown = 0

    def show(self, done: int) -> None:
        """Shows the number if it is time to."""
        self.done = done
        if self.terminal or time.monotonic() > self.due:
            self._print()

    def close(self) -> None:
        """Shows the last number, and ends the line."""
        if self.shown != self.done:
            self._print()
        if self.terminal:
            say()

    def _print(self) -> None:
        text = f'{self.done}{self.of_all} images'
        (over_last_line if self.terminal else say)(text)
        self.shown, self.due = self.done, time.monotonic() + _EVERY
