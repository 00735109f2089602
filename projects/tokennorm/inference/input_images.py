"""Input of prediction: image files, a folder of images, a video, a webcam or a stream."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import cv2
import numpy as np

from tokennorm.base.console import say, visible
from tokennorm.base.messages import UserError
from tokennorm.datasets.image_files import IMAGE_SUFFIXES, left_out, list_files, list_images
from tokennorm.images.pixels import HTTP, ImageError, begins_as_image, read_image
from tokennorm.inference.threads import in_threads

DRAWN_VIDEO = 'detections.mp4'  # of a video, in the output folder
_MOST_FRAMES = 480  # per second
_MOST_BYTES = 180  # of a part of a name


@dataclass(frozen=True)
class InputImages:
    """Named images in order."""

    # names with pixels, (H, W, 3) uint8 BGR, or with the reason why an image cannot be read
    images: Iterator[tuple[str, np.ndarray | ImageError]]
    count: int  # number of images; 0 if it is unknown
    frame_rate: float | None = None  # images per second of a video, a webcam or a stream; None for image files
    times: dict[str, float] = field(default_factory=dict)  # of the frames so far by name, in seconds; the first is at 0
    partly: list[str] = field(default_factory=list)  # names of the images so far of which a part was read, with it


def is_live(source: str) -> bool:
    """Whether an input is the index of a webcam or the URL of a stream, such as rtsp://."""
    return ('://' in source and not _is_image(source)) or (source.isdecimal() and not Path(source).exists())


def is_video(source: str) -> bool:
    """Whether an input has frames: a webcam, a stream, or a file that is not an image."""
    return is_live(source) or not (Path(source).is_dir() or _is_image(source))


def check_sources(sources: Sequence[str]) -> None:
    """Checks inputs by their names, before anything long begins."""
    for source in sources:
        if not is_live(source) and not source.startswith(HTTP) and not Path(source).exists():
            raise UserError(f'{source} not found')
        if is_video(source) and source != source.encode(errors='replace').decode():
            raise UserError(f'{source!r} is not UTF-8, which OpenCV needs for a video: rename it')
        if len(sources) > 1 and not _is_image(source):
            raise UserError(
                f'{source} is not an image file ({", ".join(IMAGE_SUFFIXES)}); several inputs must be image files. '
                'Run folders, videos and streams one by one'
            )


def open_sources(sources: Sequence[str], out: Path, every: int = 1, drawings: bool = True) -> InputImages:
    """Opens inputs that `check_sources` accepts, every Nth frame of a video, without drawings and crops in `out`.

    `drawings` are written there, and must not replace an image.
    """
    refusal = 'the drawing of {} would replace {}: choose another --out'
    if is_video(sources[0]):
        if drawings and os.path.realpath(sources[0]) == os.path.realpath(out / DRAWN_VIDEO):
            raise UserError(refusal.format(sources[0], 'it'))
        return _open_video(sources[0], every)
    folder = sources[0]
    if Path(folder).is_dir():
        own = {(out / name).resolve() for name in ('vis', 'crops')}
        paths = [str(path) for path in list_images(folder) if not own & set(path.resolve().parents)]
        if others := left_out(list_files(folder)):
            say(f'{folder}: files of formats that are not read: {others}')
        if not paths:
            raise UserError(f'{folder} has no images ({", ".join(IMAGE_SUFFIXES)})')
    else:  # names of drawings must not have `..`
        paths = [source if source.startswith(HTTP) else os.path.abspath(source) for source in sources]
        paths = list(dict.fromkeys(paths))
        folder = os.path.commonpath([os.path.dirname(path) for path in paths if not path.startswith(HTTP)] or [os.sep])
        own = {os.path.realpath(path) for path in paths if not path.startswith(HTTP)}
        drawn = [(path, out / 'vis' / f'{_name(path, folder)}{png}') for path in paths for png in ('', '.png')]
        if drawings and (replaced := [path for path, drawing in drawn if os.path.realpath(drawing) in own]):
            raise UserError(refusal.format(replaced[0], 'one of the images'))
    one_by_one = any(path.startswith(HTTP) for path in paths)  # Ctrl+C must not wait for downloads
    partly = list[str]()

    def read(path: str) -> tuple[str, np.ndarray | ImageError]:
        name, texts = _name(path, folder), list[str]()
        try:
            image: np.ndarray | ImageError = read_image(path, texts.append)
        except ImageError as error:
            image = ImageError(error.reason)
        if texts:
            partly.append(f'{name} ({", ".join(texts)})')
        return name, image

    return InputImages(map(read, paths) if one_by_one else in_threads(read, paths), len(paths), partly=partly)


def _name(path: str, folder: str) -> str:
    return name_of_url(path) if path.startswith(HTTP) else os.path.relpath(path, folder)


def name_of_url(url: str) -> str:
    """Returns the relative path under which results on the image of a URL are written: its host and its path.

    It never leads out of a folder: empty parts, `.` and `..` are left out, also between backslashes. Neither does it
    have the password and the query of the URL, which may be secret.
    """
    host, _, path = re.sub(r'^\w+://|[?#].*', '', url, flags=re.DOTALL).partition('/')
    parts = re.split(r'[/\\]', f'{host.rpartition("@")[2]}/{path}')
    return '/'.join(_short(part) for part in map(visible, parts) if part.strip(' ') not in ('', '.', '..')) or 'image'


def _short(part: str) -> str:
    """The part of a path with at most 180 bytes, its end kept; file systems allow 255 with what is added to it."""
    content = part.encode(errors='surrogateescape')
    return part if len(content) <= _MOST_BYTES else content[-_MOST_BYTES:].decode(errors='ignore')


def _is_image(source: str) -> bool:
    suffix = Path(urlsplit(source).path if source.startswith(HTTP) else source).suffix.lower()
    if suffix:
        return suffix in IMAGE_SUFFIXES and ('://' not in source or source.startswith(HTTP))
    return begins_as_image(source)


def _open_video(source: str, every: int) -> InputImages:
    live = is_live(source)
    capture = cv2.VideoCapture(int(source) if source.isdecimal() and live else source)
    if not capture.isOpened():
        kind = f'video, and is not an image ({", ".join(IMAGE_SUFFIXES)})' if not live else 'webcam or stream'
        raise UserError(f'{source} cannot be opened as a {kind}')
    frames = 0 if live else max(int(capture.get(cv2.CAP_PROP_FRAME_COUNT)), 0)
    name = 'frame' if live else Path(source).stem
    rate = capture.get(cv2.CAP_PROP_FPS)
    if not 0 < rate <= _MOST_FRAMES:  # browsers write 1000, some cameras 90000 or nothing
        say(f'{source} claims {rate:g} frames per second; 25 are assumed')
        rate = 25.0
    times = dict[str, float]()
    clock = time.monotonic if live else lambda: capture.get(cv2.CAP_PROP_POS_MSEC) / 1000
    return InputImages(_read_frames(capture, name, every, clock, times), -(-frames // every), rate / every, times)


def _read_frames(
    capture: cv2.VideoCapture, name: str, every: int, clock: Callable[[], float], times: dict[str, float]
) -> Iterator[tuple[str, np.ndarray | ImageError]]:
    """Every Nth frame; its time goes to `times`."""
    begin = 0.0
    for number in count():
        if not capture.grab():
            return
        begin = begin if number else clock()
        if number % every == 0:
            times[f'{name}/{number:06d}'] = clock() - begin
            readable, frame = capture.retrieve()
            yield f'{name}/{number:06d}', frame if readable else ImageError('the frame cannot be decoded')
