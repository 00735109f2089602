"""The decoder of images, for training, `check`, prediction and exported files: (H, W, 3) uint8 BGR, turned upright.

It needs numpy and OpenCV; Pillow for WebP, AVIF, GIF and JPEG 2000 as well as for what OpenCV cannot read.

- The EXIF orientation of every format is applied.
- 16-bit and float images are scaled linearly. White is the smallest full range that holds the largest value of the
  image: 1 (float only), 2**8 - 1, 2**10 - 1, 2**12 - 1, 2**14 - 1 or 2**16 - 1. Negative values become 0.
- Gray becomes three equal channels, a palette its colors, CMYK RGB. Transparency is dropped.
- Of several frames or pages the first is read. Files that end early are refused.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.request import urlopen

import cv2
import numpy as np

HTTP = 'http://', 'https://'
_BITS = 8, 10, 12, 14, 16
CV_LOG = getattr(cv2.utils, 'logging', cv2)  # of OpenCV 5; OpenCV 4 has its functions itself
# Files that OpenCV decodes in full, with their EXIF: JPEG, PNG, TIFF, BMP and PNM.
_OPENCV = b'\xff\xd8\xff', b'\x89PNG', b'II*\0', b'MM\0*', b'BM', *(b'P%d' % i for i in range(1, 7))


class ImageError(ValueError):
    """An image that cannot be used.

    Args:
        reason: Why.
        path: Its file, which the text then names.
    """

    def __init__(self, reason: str, path: Any = None) -> None:
        super().__init__(reason if path is None else f'image {path} cannot be read: {reason}')
        self.reason = reason


class _Silence:
    """How many threads read with OpenCV now: the first turns its log off, the last puts the level back."""

    def __init__(self) -> None:
        self.lock, self.threads, self.level = Lock(), 0, 0

    def change(self, by: int) -> None:
        with self.lock:
            if not self.threads:
                self.level = CV_LOG.getLogLevel()
            self.threads += by
            CV_LOG.setLogLevel(0 if self.threads else self.level)


_silence = _Silence()
if hasattr(os, 'register_at_fork'):  # a data worker has no such threads
    os.register_at_fork(after_in_child=_silence.__init__)


@contextmanager
def silent_opencv() -> Iterator[None]:
    """OpenCV logs nothing inside, in any thread."""
    _silence.change(1)
    try:
        yield
    finally:
        _silence.change(-1)


def as_pixels(image: Any) -> np.ndarray:
    """Returns an image as (H, W, 3) uint8 BGR: of a path, a PIL image or an array, which must be BGR or gray already.

    Raises:
        ImageError: for a file that is not a readable image, and for other arrays.
    """
    if isinstance(image, str | os.PathLike):
        return read_image(image)
    if hasattr(image, 'getexif'):  # PIL's
        if getattr(image, 'tile', None) and not image.tell() and os.path.isfile(image.filename):
            pixels = read_image(image.filename)  # not decoded yet: the pixels that the path gives
            if sorted(pixels.shape[:2]) == sorted(image.size):  # `Image.draft` makes it smaller
                return pixels
        return _from_pillow(image)
    if not isinstance(image, np.ndarray):
        raise ImageError(f'an image must be a path, an array or a PIL image, not {type(image).__name__}')
    if image.ndim == 2 and image.dtype == np.uint8 and image.size:
        return cv2.cvtColor(image, cv2.COLOR_GRAY2BGR)
    if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape or image.dtype != np.uint8:
        raise ImageError(
            f'an image of shape {image.shape} and {image.dtype} must be (H, W, 3) in BGR, or gray (H, W), and uint8'
        )
    return image


def read_image(path: str | os.PathLike) -> np.ndarray:
    """Reads an image file, or downloads one.

    Raises:
        ImageError: for a file that is not a readable image.
    """
    reason = 'it cannot be decoded'
    try:
        if str(path).startswith(HTTP):
            with urlopen(str(path), timeout=30) as file:
                content = file.read()
        else:
            content = Path(path).read_bytes()
        if (image := decode(content)) is not None:
            return image
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, 'strerror', None) or str(error)
    raise ImageError(reason, path)


def begins_as_image(path: str | os.PathLike) -> bool:
    """Whether a path is a file that begins as an image, whatever its name."""
    with suppress(OSError), open(path, 'rb') as file:  # not a folder's or a webcam's
        head = file.read(12)
        return head.startswith((*_OPENCV, b'GIF8')) or head[8:] == b'WEBP' or head[4:] in (b'ftypavif', b'ftypheic')
    return False


def decode(content: bytes) -> np.ndarray | None:
    """Returns the image of a file's content; None if it cannot be decoded."""
    decoders: list[Callable[[bytes], np.ndarray | None]] = [_by_opencv, _by_pillow]
    for decoder in decoders if content.startswith(_OPENCV) else decoders[::-1]:
        try:
            if (image := decoder(content)) is not None:
                return image
        except ImageError:
            raise
        except Exception:  # each format's reader raises its own
            continue
    return None


def _by_opencv(content: bytes) -> np.ndarray | None:
    if content.startswith(b'RIFF') and b'EXIF' in content:  # not every version of OpenCV turns WebP
        return None
    if content.startswith((b'II*\0', b'MM\0*')) and _has_alpha(content):  # OpenCV multiplies the colors by it
        return None
    with silent_opencv():  # the caller names the file
        image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)
    return None if image is None else _to_8_bits(image)


def _has_alpha(content: bytes) -> bool:
    """Whether a TIFF of 8 bits has a transparency that its colors are not multiplied by."""
    with suppress(Exception):
        from io import BytesIO

        from PIL.TiffImagePlugin import TiffImageFile  # `Image.open` warns of large ones

        with TiffImageFile(BytesIO(content)) as image:
            return image.mode == 'RGBA' and image.tag_v2.get(338) == (2,) and set(image.tag_v2[258]) == {8}
    return False


def _by_pillow(content: bytes) -> np.ndarray:
    from io import BytesIO

    from PIL import Image

    with Image.open(BytesIO(content)) as image:
        return _from_pillow(image)


def _from_pillow(image: Any) -> np.ndarray:
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode[0] in 'IF':  # more than 8 bits
        return cv2.cvtColor(_to_8_bits(np.asarray(image)), cv2.COLOR_GRAY2BGR)
    return np.ascontiguousarray(np.asarray(image.convert('RGB'))[..., ::-1])


def _to_8_bits(image: np.ndarray) -> np.ndarray:
    if image.dtype == np.uint8:
        return image
    ranges = [2**bits - 1 for bits in _BITS]
    if image.dtype.kind == 'f':
        image, ranges = np.nan_to_num(image, posinf=0, neginf=0), [1, *ranges]
    most = image.max()
    if most <= 0 and image.min() < 0:
        raise ImageError('it has no value above 0, such as decibels; convert it to 8 or 16 bits')
    if image.dtype.kind == 'f' and 1 < most <= 2:  # resampled, or above white
        most = 1
    white = next((value for value in ranges if most <= value), most)
    return (image.clip(0, white) * (255 / float(white)) + 0.5).astype(np.uint8)
