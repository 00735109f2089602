"""Opens image files as training would, and says what is wrong with them."""

from pathlib import Path

import mmcv
from PIL import Image

_END_MARKS = dict(JPEG=b'\xff\xd9', PNG=b'IEND\xaeB`\x82')
_ROTATED_BY_EXIF = range(5, 9)  # orientations that swap height and width


def open_image(folder: Path, name: str) -> tuple[str, tuple[int, int]]:
    """What is wrong with an image file, and its width and height as training reads it, turned as its EXIF says.

    A file is decoded only where it does not end as its format does.

    Returns:
        '', 'missing' or 'that cannot be decoded'; and width and height in pixels, or (0, 0).
    """
    path = folder / name
    if not path.is_file():
        return 'missing', (0, 0)
    try:
        with Image.open(path) as image:
            size, mark = image.size, _END_MARKS.get(image.format)
            if image.getexif().get(0x0112) in _ROTATED_BY_EXIF:
                size = size[::-1]
    except Exception:  # each format's reader raises its own
        mark, size = None, None
    if mark is not None:
        with path.open('rb') as file:
            file.seek(-min(64, path.stat().st_size), 2)
            if mark in file.read():
                return '', size
    return _decode_image(path)


def _decode_image(path: Path) -> tuple[str, tuple[int, int]]:
    """`open_image` by the decoder of training, which refuses a file that ends early."""
    try:
        pixels = mmcv.imfrombytes(path.read_bytes())
    except Exception:  # OpenCV's errors
        pixels = None
    return ('that cannot be decoded', (0, 0)) if pixels is None else ('', (pixels.shape[1], pixels.shape[0]))
