"""Opens image files as training would, and names what is wrong with them.

mmcv reads with OpenCV: in color, turned as the EXIF of JPEG and PNG says (not the EXIF of WebP), grey as three equal
channels, CMYK as RGB, without transparency, and the upper 8 of 16 bits. It refuses files that end early, and images of
more than 2**30 pixels.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np

IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.tif', '.tiff', '.webp', '.ppm', '.pgm')
MANY = 5000  # files, from which on processes open them
_END_MARKS = dict(JPEG=b'\xff\xd9', PNG=b'IEND\xaeB`\x82')
_ORIENTATION, _ROTATED_BY_EXIF = 0x0112, range(5, 9)  # orientations that swap height and width


def list_images(folder: Path) -> list[Path]:
    """Returns the image files of a folder and its subfolders, sorted; links to folders are followed."""
    found = (Path(place, name) for place, _, names in os.walk(folder, followlinks=True) for name in names)
    return sorted(path for path in found if path.suffix.lower() in IMAGE_SUFFIXES)


def map_files(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> Iterator[Any]:
    """Begins to compute a function of each item, in processes for many items, and returns the results in their order.

    Many items show a progress bar.
    """
    from rich.progress import track

    many = len(items) >= MANY
    in_processes = many and sys.platform == 'linux'  # elsewhere a process would import the user's script again
    pool = ProcessPoolExecutor(mp_context=get_context('fork')) if in_processes else ThreadPoolExecutor()
    results = pool.map(function, items, chunksize=64)
    pool.shutdown(wait=False)
    return track(results, what, total=len(items), disable=not many)


def read_image(path: str | Path) -> np.ndarray | None:
    """An image as training reads it, (H, W, 3) uint8 BGR; None if it cannot be read."""
    try:
        return cv2.imdecode(np.frombuffer(Path(path).read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    except (OSError, ValueError, cv2.error):
        return None


def open_image(folder: Path, name: str) -> tuple[str, tuple[int, int]]:
    """Returns why training could not read an image file, or '', and its width and height as training reads it.

    It is decoded only if it does not end as its format does, or if the checksums of a PNG are wrong. A JPEG with wrong
    bytes in its middle is not detected.
    """
    from PIL import Image  # detection with an exported file does not need it

    path = os.path.join(folder, name)
    if not os.path.isfile(path):  # unlike Path's, it accepts every name
        return 'missing', (0, 0)
    with suppress(Exception), open(path, 'rb') as file:  # each format's reader raises its own
        with Image.open(file) as image:
            size, mark = image.size, _END_MARKS.get(image.format or '')
            if 'exif' in image.info and image.getexif().get(_ORIENTATION) in _ROTATED_BY_EXIF:
                size = size[::-1]
            if image.format != 'JPEG':  # `verify` reads nothing of a JPEG
                image.verify()
        file.seek(-min(64, os.fstat(file.fileno()).st_size), os.SEEK_END)
        if mark is not None and mark in file.read():
            return '', size
    pixels = read_image(path)  # by the decoder of training, which refuses a file that ends early
    return ('that cannot be decoded', (0, 0)) if pixels is None else ('', pixels.shape[1::-1])
