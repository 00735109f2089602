"""Files of a dataset: which ones are data, and whether an image file can be decoded."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from tokennorm import pixels

IMAGE_SUFFIXES = (
    *('.jpg', '.jpeg', '.jpe', '.jfif', '.mpo', '.png', '.bmp', '.dib', '.tif', '.tiff', '.webp', '.avif', '.gif'),
    *('.jp2', '.j2k', '.ppm', '.pgm', '.pbm', '.pnm'),
)
# Files that are not read as images, named where they are left out
_OTHER_SUFFIXES = (
    *('.heic', '.heif', '.jxl', '.dng', '.cr2', '.nef', '.arw', '.raw', '.psd', '.svg', '.dcm', '.npy'),
    *('.mp4', '.mov', '.avi', '.mkv'),
)
MANY = 5000  # files, from which on processes open them
_NOT_DATA = ('__macosx', '@eadir', '$recycle.bin', '#recycle')  # folders of operating systems and network drives
_END_MARKS = dict(JPEG=b'\xff\xd9', PNG=b'IEND\xaeB`\x82')
_ORIENTATION = 0x0112  # EXIF: 2 to 8 turn or mirror the image, from 5 on with height and width exchanged


def is_data(name: str) -> bool:
    """Returns whether a file or folder of this name is part of a dataset: not hidden, nor an operating system's."""
    return not name.startswith('.') and name.lower() not in _NOT_DATA


def list_files(folder: str | Path) -> list[Path]:
    """Returns the data files of a folder and its subfolders, sorted.

    Links to folders are followed. A folder that several links lead to is read once, so that circles end.
    """
    found, seen = [], set()

    def read(place: str) -> None:
        if (real := os.path.realpath(place)) in seen:
            return
        seen.add(real)
        with os.scandir(place) as entries:
            chosen = sorted((entry for entry in entries if is_data(entry.name)), key=lambda entry: entry.name)
        for entry in chosen:
            if not entry.is_dir():
                found.append(Path(entry.path))
            else:
                read(entry.path)

    read(str(folder))
    return found


def is_image(path: str | Path) -> bool:
    """Returns whether a file has the suffix of an image format that is read, in any case."""
    return Path(path).suffix.lower() in IMAGE_SUFFIXES


def read_text(path: Path) -> str:
    """Returns the text of a file in UTF-8, or in UTF-16 with its mark, as editors and shells on Windows write them."""
    content = path.read_bytes()
    try:
        return content.decode('utf-16' if content.startswith((b'\xff\xfe', b'\xfe\xff')) else 'utf-8-sig')
    except UnicodeDecodeError as error:
        raise ValueError(f'{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8') from None


def list_images(folder: str | Path) -> list[Path]:
    """Returns the image files among `list_files`."""
    return [path for path in list_files(folder) if is_image(path)]


def left_out(files: Iterable[str | Path]) -> str:
    """Returns the number of files of formats that are not read, by suffix, such as '3 .heic, 1 .dng', or ''."""
    counts = Counter(suffix for path in files if (suffix := Path(path).suffix.lower()) in _OTHER_SUFFIXES)
    return ', '.join(f'{count} {suffix}' for suffix, count in counts.most_common())


def _end_with_parent(parent: int) -> None:
    """Has this process end within a second after its parent, which SIGKILL may end at any time."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def map_files(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> Iterator[Any]:
    """Begins to compute a function of each item, in processes for many items, and returns the results in their order.

    Many items show a progress bar. The processes end with this one, however it ends.
    """
    from rich.progress import track

    many = len(items) >= MANY
    in_processes = many and sys.platform == 'linux'  # elsewhere a process would import the user's script again
    pool = ThreadPoolExecutor()
    if in_processes:
        context = get_context('fork')
        pool = ProcessPoolExecutor(mp_context=context, initializer=_end_with_parent, initargs=(os.getpid(),))
    results = pool.map(function, items, chunksize=64)
    pool.shutdown(wait=False)
    return track(results, what, total=len(items), disable=not many)


def read_image(path: str | Path) -> np.ndarray | None:
    """An image as training reads it, (H, W, 3) uint8 BGR; None if it cannot be read."""
    try:
        return pixels.read_image(path)
    except pixels.ImageError:
        return None


def open_image(folder: Path, name: str) -> tuple[str, tuple[int, int], bool]:
    """Opens an image file as training reads it.

    It is decoded only if it does not end as its format does, or if the checksums of a PNG are wrong. A JPEG with wrong
    bytes in its middle is not detected.

    Returns:
        Why it could not be read, or ''; its width and height; whether its EXIF turns it.
    """
    from PIL import Image  # detection with an exported file does not need it

    path, turn = os.path.join(folder, name), 1
    if not os.path.isfile(path):  # unlike Path's, it accepts every name
        return 'missing', (0, 0), False
    with suppress(Exception), open(path, 'rb') as file:  # each format's reader raises its own
        with Image.open(file) as image:
            size, mark = image.size, _END_MARKS.get(image.format or '')
            if 'exif' in image.info or image.format == 'TIFF':
                turn = image.getexif().get(_ORIENTATION, 1)
            if turn in range(5, 9):
                size = size[::-1]
            if image.format != 'JPEG':  # `verify` reads nothing of a JPEG
                image.verify()
        file.seek(-min(64, os.fstat(file.fileno()).st_size), os.SEEK_END)
        if mark is not None and mark in file.read():
            return '', size, turn in range(2, 9)
    try:
        image = pixels.read_image(path)  # refuses a file that ends early
    except pixels.ImageError as error:
        with suppress(OSError), open(path, 'rb') as file:
            if file.read(24) == b'version https://git-lfs.':
                return 'that are pointers of Git LFS (`git lfs pull` gets them)', (0, 0), False
        return f'that cannot be used ({str(error).partition(" cannot be read: ")[2]})', (0, 0), False
    return '', image.shape[1::-1], turn in range(2, 9)
