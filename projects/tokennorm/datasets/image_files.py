"""Files of a dataset: which ones are data, and whether an image file can be decoded."""

import ctypes
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokennorm.findings import Rule
from tokennorm.images import pixels

UNREADABLE_IMAGE = Rule('unreadable-image', 'error', 'image files that are missing or cannot be decoded',
    can_allow=False, why='Training would end at the first of them.',
    do='Restore these files, or remove their entries')  # fmt: skip
PARTLY_READ_IMAGE = Rule('partly-read-image', 'note', 'image files of which a part is read',
    why='Detectors take three channels of 8 bits. Of several pages or frames the first is read, of more than four '
        'channels the first three; values of floats that resampling or the camera made too low or too high are cut. '
        'Values of other types are scaled without being cut.',
    do='Save pages and frames as files of their own, and scale values to 8 or 16 bits')  # fmt: skip

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
_PR_SET_PDEATHSIG = 1  # of Linux: the signal that a process gets when its parent ends
_GIT_LFS = b'version https://git-lfs.'


class ImageFile(NamedTuple):
    """What `open_image` finds."""

    problem: str  # why it cannot be read, or ''
    size: tuple[int, int] = (0, 0)  # width and height, upright
    is_turned: bool = False  # by its EXIF
    end: bytes = b''  # a digest of the size and the last bytes of the file, in which most images differ
    left_out: tuple[str, ...] = ()  # what of the file is not in the image


def is_data(name: str) -> bool:
    """Returns whether a file or folder of this name is part of a dataset: not hidden, nor an operating system's."""
    return not name.startswith('.') and name.lower() not in _NOT_DATA


def list_files(folder: str | Path) -> list[Path]:
    """Returns the data files of a folder and its subfolders, sorted.

    Links to folders are followed. A folder that several links lead to is read once, so that circles end.
    """
    found, seen = [], set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(filter(is_data, folders))
        found += [Path(place, name) for name in filter(is_data, names)]
    return sorted(found, key=lambda path: path.parts)


def is_image(path: str | Path) -> bool:
    """Returns whether a file has the suffix of an image format that is read, in any case."""
    return suffix_of(path) in IMAGE_SUFFIXES


def suffix_of(path: str | Path) -> str:
    """Returns the suffix of a file in lower case, faster than `Path.suffix`."""
    return os.path.splitext(path)[1].lower()


def list_images(folder: str | Path) -> list[Path]:
    """Returns the image files among `list_files`."""
    return [path for path in list_files(folder) if is_image(path)]


def left_out(files: Iterable[str | Path]) -> str:
    """Returns the number of files of formats that are not read, by suffix, such as '3 .heic, 1 .dng', or ''."""
    counts = Counter(suffix for path in files if (suffix := suffix_of(path)) in _OTHER_SUFFIXES)
    return ', '.join(f'{count} {suffix}' for suffix, count in counts.most_common())


def read_text(path: Path) -> str:
    """Returns the text of a file in UTF-8, or in UTF-16 with its mark, as editors and shells on Windows write them."""
    content = path.read_bytes()
    try:
        return content.decode('utf-16' if content.startswith((b'\xff\xfe', b'\xfe\xff')) else 'utf-8-sig')
    except UnicodeDecodeError as error:
        raise ValueError(f'{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8') from None


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a text file that are not blank."""
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]


def map_files(function: Callable[[Any], Any], items: Sequence[Any], what: str) -> Iterable[Any]:
    """Maps a function over items in a pool, of processes for many items. Returns the results in order.

    The work begins at once, before the results are read. Many items show a progress bar. The processes end with this
    one, however it ends.
    """
    from rich.console import Console
    from rich.progress import track

    many = len(items) >= MANY
    pool: Executor
    if many and sys.platform == 'linux':  # elsewhere a process would import the user's script again
        fork, end_with_parent = get_context('fork'), ctypes.CDLL(None).prctl
        pool = ProcessPoolExecutor(None, fork, initializer=end_with_parent, initargs=(_PR_SET_PDEATHSIG, 9))
    else:
        pool = ThreadPoolExecutor()
    results = pool.map(function, items, chunksize=64)
    pool.shutdown(wait=False)
    # rich's own form in a notebook warns of ipywidgets, three times per bar
    return track(results, what, total=len(items), disable=not many, console=Console(force_jupyter=False))


def read_image(path: str | Path) -> np.ndarray | None:
    """An image as training reads it, (H, W, 3) uint8 BGR; None if it cannot be read."""
    try:
        return pixels.read_image(path)
    except pixels.ImageError:
        return None


def open_image(path: str | Path) -> ImageFile:
    """Opens an image file as training reads it.

    It is decoded only if it does not end as its format does, or if the checksums of a PNG are wrong. A JPEG with wrong
    bytes in its middle is not detected.
    """
    from PIL import Image  # detection with an exported file does not need it

    if not os.path.isfile(path):  # unlike Path's, it accepts every name
        return ImageFile('missing')
    turn, digest, left_out = 1, b'', list[str]()
    with suppress(Exception), open(path, 'rb') as file:  # each format's reader raises its own
        with Image.open(file) as image:
            size, mark = image.size, _END_MARKS.get(image.format or '')
            if 'exif' in image.info or image.format == 'TIFF':
                turn = image.getexif().get(_ORIENTATION, 1)
            if turn in range(5, 9):
                size = size[::-1]
            left_out = [pixels.FRAMES] * getattr(image, 'is_animated', False)
            if image.format != 'JPEG':  # `verify` reads nothing of a JPEG
                image.verify()
        num_bytes = os.fstat(file.fileno()).st_size
        file.seek(max(num_bytes - 4096, 0))
        end = file.read()
        digest = hashlib.blake2b(end, digest_size=16, salt=num_bytes.to_bytes(16)).digest()
        if mark is not None and mark in end[-64:]:
            return ImageFile('', size, turn in range(2, 9), digest, tuple(left_out))
    left_out = []
    try:
        image = pixels.read_image(path, left_out.append)  # refuses a file that ends early
    except pixels.ImageError as error:
        with suppress(OSError), open(path, 'rb') as file:
            if file.read(len(_GIT_LFS)) == _GIT_LFS:
                return ImageFile('that are pointers of Git LFS (`git lfs pull` gets them)')
        return ImageFile(f'that cannot be used ({error.reason})')
    return ImageFile('', image.shape[1::-1], turn in range(2, 9), digest, tuple(left_out))
