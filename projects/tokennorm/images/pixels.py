"""The decoder of images, for training, `check`, prediction and exported files: (H, W, 3) uint8 BGR, turned upright.

It needs numpy and OpenCV; Pillow for WebP, AVIF, GIF and JPEG 2000 as well as for what OpenCV cannot read.

- The EXIF orientation of every format is applied.
- 16-bit and float images are scaled linearly. White is the smallest full range that holds the largest value of the
  image: 1 (float only), 2**8 - 1, 2**10 - 1, 2**12 - 1, 2**14 - 1 or 2**16 - 1. Black is 0. With negative values, as
  in CT, black is the nearest -2**n below all values; white of floats is then 1 or the nearest 2**n above.
- Float images that are between -1/4 and 2 are cut at 0 and 1, as resampled images are.
- What marks pixels without a value becomes 0: NaN, infinity, values beyond 1e37, and a number such as -9999 that is far
  below all others.
- Gray becomes three equal channels, a palette its colors, CMYK RGB. Transparency is dropped.
- Of several frames or pages the first is read, of more channels than colors the first ones. Files that end early are
  refused.

What is cut or left out this way can be told: the functions that read files call `note` with a text about each.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.request import urlopen

import cv2
import numpy as np

from tokennorm.base.messages import UserError

HTTP = 'http://', 'https://'
Note = Callable[[str], Any]
PAGES, FRAMES = 'the first of several pages', 'the first of several frames'
_BITS = 8, 10, 12, 14, 16
_MARK = -999  # and less
_NO_VALUE = 1e37  # and more: GeoTIFF marks pixels without a value by the least number of float32, -3.4e38
CV_LOG = getattr(cv2.utils, 'logging', cv2)  # of OpenCV 5; OpenCV 4 has its functions itself
# Files that OpenCV decodes in full, with their EXIF: JPEG, PNG, TIFF, BMP and PNM.
_OPENCV = b'\xff\xd8\xff', b'\x89PNG', b'II*\0', b'MM\0*', b'BM', *(b'P%d' % i for i in range(1, 7))


class ImageError(UserError, ValueError):
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
        return _to_8_bits(_from_pillow(image))
    if not isinstance(image, np.ndarray):
        raise ImageError(f'an image must be a path, an array or a PIL image, not {type(image).__name__}')
    if image.ndim == 2 and image.dtype == np.uint8 and image.size:
        return cv2.cvtColor(image, cv2.COLOR_GRAY2BGR)
    if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape or image.dtype != np.uint8:
        raise ImageError(
            f'an image of shape {image.shape} and {image.dtype} must be (H, W, 3) in BGR, or gray (H, W), and uint8'
        )
    return image


def read_image(path: str | os.PathLike, note: Note | None = None) -> np.ndarray:
    """Reads an image file, or downloads one.

    `note` is called with each part of the file that is not in the image.

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
        if (image := decode(content, note)) is not None:
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


def decode(content: bytes, note: Note | None = None) -> np.ndarray | None:
    """Returns the image of a file's content; None if it cannot be decoded. `note` is that of `read_image`."""
    decoders: list[Callable[[bytes], np.ndarray | None]] = [_by_opencv, _by_pillow]
    for decoder in decoders if content.startswith(_OPENCV) else decoders[::-1]:
        with suppress(Exception):  # each format's reader raises its own
            if (image := decoder(content)) is not None:
                break
    else:
        return None
    if note is not None:
        for text in left_out(content):
            note(text)
    return _to_8_bits(image, note)


def left_out(content: bytes) -> list[str]:
    """Returns what of a file's content is not read, other than values of pixels, as far as Pillow can tell.

    What follows the first image of a JPEG is a preview, a depth or a gain map, and not a page.
    """
    texts = list[str]()
    with suppress(Exception):  # without Pillow, or of a format that it does not know
        if content.startswith((b'II', b'MM')):
            from PIL.TiffImagePlugin import ImageFileDirectory_v2

            tags, file = ImageFileDirectory_v2(content[: 16 if 43 in content[2:4] else 8]), BytesIO(content)
            file.seek(tags.next)
            tags.load(file)
            channels, ink, extra = (tags.get(key) for key in (277, 262, 338))  # 1 and 2 of 338 are transparency
            colors = {2: 3, 5: 4, 6: 3, 8: 3}.get(ink or 1, 1)  # RGB, CMYK, YCbCr, Lab; else gray or a palette
            if (channels or 1) > colors + bool({1, 2} & {*(extra or ())}):
                texts.append(f'{min(colors, 3)} of {channels} channels')
            if tags.next:
                file.seek(tags.next)
                tags.load(file)
                texts += [PAGES] * (not tags.get(254, 0) & 5)  # others are smaller copies and masks
        elif content.startswith((b'GIF8', b'RIFF')) or content[4:8] == b'ftyp' or _is_animated_png(content):
            from PIL import Image

            with Image.open(BytesIO(content)) as image:
                texts += [FRAMES] * getattr(image, 'is_animated', False)
    return texts


def _is_animated_png(content: bytes) -> bool:
    return content.startswith(b'\x89PNG') and b'acTL' in content[: content.find(b'IDAT')]


def _by_opencv(content: bytes) -> np.ndarray | None:
    if content.startswith(b'RIFF') and b'EXIF' in content:  # not every version of OpenCV turns WebP
        return None
    if content.startswith((b'II*\0', b'MM\0*')) and _has_alpha(content):  # OpenCV multiplies the colors by it
        return None
    with silent_opencv():  # the caller names the file
        return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH)


def _has_alpha(content: bytes) -> bool:
    """Whether a TIFF of 8 bits has a transparency that its colors are not multiplied by."""
    with suppress(Exception):
        from PIL.TiffImagePlugin import TiffImageFile  # `Image.open` warns of large ones

        with TiffImageFile(BytesIO(content)) as image:
            return image.mode == 'RGBA' and image.tag_v2.get(338) == (2,) and set(image.tag_v2[258]) == {8}
    return False


def _by_pillow(content: bytes) -> np.ndarray:
    from PIL import Image

    with Image.open(BytesIO(content)) as image:
        return _from_pillow(image)


def _from_pillow(image: Any) -> np.ndarray:
    """The values of a PIL image, (H, W, 3), or (H, W) with more than 8 bits."""
    from PIL import ImageOps

    tags = getattr(image, 'tag_v2', {})  # Pillow reads unsigned TIFF of 32 bits as signed
    is_unsigned = image.mode == 'I' and tags.get(258) == (32,) and tags.get(339, (1,)) == (1,)
    image = ImageOps.exif_transpose(image)
    if image.mode[0] in 'IF':  # more than 8 bits
        return np.asarray(image).view(np.uint32) if is_unsigned else np.asarray(image)
    return np.ascontiguousarray(np.asarray(image.convert('RGB'))[..., ::-1])


def _to_8_bits(image: np.ndarray, note: Note | None = None) -> np.ndarray:
    """(H, W, 3) or (H, W) -> (H, W, 3) uint8."""
    if image.dtype != np.uint8:
        is_float = image.dtype.kind == 'f'
        if is_float and not (has_value := np.abs(image) < _NO_VALUE).all():
            image = np.where(has_value, image, 0)
            if note is not None:
                note('NaN, infinity and values beyond 1e37 as 0')
        least, most = image.min().item(), image.max().item()
        if least <= _MARK and most > 0:
            lowest = image[image > least].min().item()  # of the others
            if 0 < 2 * (most - lowest) < lowest - least:
                if note is not None:
                    note(f'pixels of {least:.6g} as 0')
                image, least = np.where(image == least, 0, image), min(lowest, 0)
        if most <= 0 and least < 0:
            raise ImageError('it has no value above 0, such as decibels; convert it to 8 or 16 bits')
        black, white = _black_and_white(least, most, is_float)
        rounded = (white - black) / 510
        if note is not None and (least < black - rounded or most > white + rounded):
            note(f'values from {least:.3g} to {most:.3g} cut at {black} and {white}')
        if image.dtype.kind == 'i':
            image = image.astype(np.float64)  # white may be more than its type holds
        image = ((image.clip(black, white) - black) * (255 / (white - black)) + 0.5).astype(np.uint8)
    return cv2.cvtColor(image, cv2.COLOR_GRAY2BGR) if image.ndim == 2 else image


def _black_and_white(least: float, most: float, is_float: bool) -> tuple[float, float]:
    """The values of black and white for an image with these extreme values."""
    if is_float and least >= -0.25 and most <= 2:
        return 0, 1
    if least < 0 and is_float:
        white = max(1, _power_of_two(most))
    else:
        white = next((value for value in (2**bits - 1 for bits in _BITS) if most <= value), most)
    return -_power_of_two(-least) if least < 0 else 0, white


def _power_of_two(value: float) -> float:
    """The smallest power of 2 that is not below a positive value."""
    return 2.0 ** math.ceil(math.log2(value))
