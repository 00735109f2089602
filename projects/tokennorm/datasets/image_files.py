"""Opens image files as training would, and says what is wrong with them.

mmcv reads with OpenCV: in colour, turned as the EXIF of JPEG and PNG says (not that of WebP), grey as three equal
channels, CMYK turned into RGB, transparency left out, and the upper 8 of 16 bits. It refuses files that end early, and
images of more than 2**30 pixels.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import mmcv
from PIL import Image

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp', '.ppm', '.pgm')
MOST_PIXELS = int(os.environ.get('OPENCV_IO_MAX_IMAGE_PIXELS', 2**30))
LARGE = 100_000_000  # pixels
_END_MARKS = dict(JPEG=b'\xff\xd9', PNG=b'IEND\xaeB`\x82')
_ROTATED_BY_EXIF = range(5, 9)  # orientations that swap height and width


class OpenedImage(NamedTuple):
    """What `open_image` found.

    Attributes:
        problem: Why training could not read the file, or ''.
        size: Width and height in pixels, as training reads it; (0, 0) with a problem.
        notes: What training reads otherwise than one might think.
    """

    problem: str
    size: tuple[int, int] = (0, 0)
    notes: tuple[str, ...] = ()


def list_images(folder: Path) -> list[Path]:
    """The image files of a folder and its subfolders, sorted."""
    return sorted(path for path in folder.rglob('*') if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())


@contextmanager
def any_size() -> Iterator[None]:
    """Lets Pillow open images that it would take for an attack by their size; they are not decoded by it."""
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def open_image(folder: Path, name: str) -> OpenedImage:
    """Opens one image file. It is decoded only where it does not end as its format does, or the checksums of a PNG do
    not hold; a JPEG with other bytes in its middle is not found out.

    Call it within `any_size`.
    """
    path = folder / name
    if not os.path.isfile(path):  # which, other than Path's, has an answer to every name
        return OpenedImage('missing')
    try:
        with Image.open(path) as image:
            size, mark, tiles = image.size, _END_MARKS.get(image.format), str(image.tile)
            exif = Image.Exif()  # image.getexif() would decode a PNG, and heed XMP, which OpenCV does not
            exif.load(image.info.get('exif'))
            if exif.get(0x0112) in _ROTATED_BY_EXIF:
                size = size[::-1]
            image.verify()
    except Exception:  # each format's reader raises its own
        return _decode_image(path, ())
    if size[0] * size[1] > MOST_PIXELS:
        return OpenedImage(f'of more than {MOST_PIXELS} pixels, which OpenCV does not decode')
    notes = ['of 16 bits a channel, of which training reads the upper 8'] if ';16' in tiles else []
    if size[0] * size[1] > LARGE:
        notes.append(f'of more than {LARGE // 10**6} million pixels, which take 3 bytes each while they are read')
    try:
        with path.open('rb') as file:
            file.seek(-min(64, path.stat().st_size), 2)
            is_whole = mark is not None and mark in file.read()
    except OSError:
        is_whole = False
    return OpenedImage('', size, tuple(notes)) if is_whole else _decode_image(path, tuple(notes))


def _decode_image(path: Path, notes: tuple[str, ...]) -> OpenedImage:
    """`open_image` by the decoder of training, which refuses a file that ends early."""
    try:
        pixels = mmcv.imfrombytes(path.read_bytes())
    except Exception:  # OpenCV's errors
        pixels = None
    if pixels is None:
        return OpenedImage('that cannot be decoded')
    return OpenedImage('', (pixels.shape[1], pixels.shape[0]), notes)
