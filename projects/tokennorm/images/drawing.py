"""Draws boxes, masks and short texts on images, with numpy and OpenCV; texts beyond ASCII also with Pillow."""

import colorsys
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import cv2
import numpy as np

from tokennorm.base.console import visible

Color = tuple[int, int, int]
COVERED = 0.15  # share of a picture that plates may cover


def color_of(label: int) -> Color:
    """Returns a bright BGR color. Hues step by the golden ratio, so that neighbors differ strongly."""
    red, green, blue = colorsys.hsv_to_rgb((0.02 + int(label) * 0.61803) % 1, 0.6, 1.0)
    return round(255 * blue), round(255 * green), round(255 * red)


def printable(text: str) -> str:
    r"""Returns a text in ASCII: without accents, and with escapes such as `\u7ea2` for other characters."""
    return ''.join(map(_plain, unicodedata.normalize('NFC', text)))


def _plain(character: str) -> str:
    base = ''.join(one for one in unicodedata.normalize('NFKD', character) if not unicodedata.combining(one))
    return base if base and base.isascii() else character.encode('ascii', 'backslashreplace').decode()


class Text:
    """A line of text in any script, to be measured and drawn.

    ASCII is drawn with OpenCV's font. Other texts need Pillow and a font file with their characters: DejaVu Sans, which
    matplotlib has, or one of the system. What no font has is drawn as an escape such as `\\u7ea2`.

    Args:
        text: The text. Control characters are drawn as escapes.
        size: Scale of OpenCV's font, whose capitals are 21 pixels high at 1.
        line: Width of OpenCV's strokes in pixels.

    Attributes:
        length: Width in pixels.
        tall: Height above the base line in pixels.
        below: Depth below the base line in pixels.
    """

    def __init__(self, text: str, size: float, line: int) -> None:
        text = unicodedata.normalize('NFC', visible(' '.join(text.split())))
        self.size, self.line, self.font = size, line, None
        if not text.isascii() and (file := _font_file(frozenset(text))):
            missing = {ord(one): printable(one) for one in set(text) - _characters(file)}
            self.text, self.font = text.translate(missing), (file, max(12, round(29 * size)))
            (left, top, right, bottom), _ = _pixels(self.font, self.text)
            self.length, self.tall, self.below = max(right, right - left), -top, bottom
        else:
            self.text = printable(text)
            (self.length, self.tall), self.below = cv2.getTextSize(self.text, cv2.FONT_HERSHEY_SIMPLEX, size, line)

    def draw(self, picture: np.ndarray, x: int, y: int, color: Color) -> None:
        """Draws the text on a picture (H, W, 3) uint8, its base line at y."""
        if self.font is None:
            cv2.putText(picture, self.text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, self.size, color, self.line, cv2.LINE_AA)
            return
        (left, top, *_), opacity = _pixels(self.font, self.text)
        left, top = x + left, y + top
        height, width = opacity.shape
        rows, columns = (slice(max(at, 0), max(at + length, 0)) for at, length in ((top, height), (left, width)))
        place = picture[rows, columns]
        seen = opacity[rows.start - top :, columns.start - left :][: place.shape[0], : place.shape[1], None] / 255.0
        place[:] = np.rint(place * (1 - seen) + np.array(color) * seen)


@lru_cache(4096)
def _pixels(font: tuple[str, int], text: str) -> tuple[tuple[int, int, int, int], np.ndarray]:
    """The box of a drawn text, of x and y from the beginning of its base line, and the opacity of its pixels, uint8."""
    from PIL import Image, ImageDraw

    face = _face(*font)
    left, top, right, bottom = (int(np.floor(one)) for one in face.getbbox(text, anchor='ls'))
    box = left - 1, top - 1, right + 2, bottom + 2
    image = Image.new('L', (box[2] - box[0], box[3] - box[1]))
    ImageDraw.Draw(image).text((-box[0], -box[1]), text, 255, face, anchor='ls')
    return box, np.asarray(image)


@lru_cache
def _face(file: str, pixels: int) -> Any:
    from PIL import ImageFont

    return ImageFont.truetype(file, pixels)


@lru_cache
def _characters(file: str) -> frozenset[str]:
    from matplotlib.ft2font import FT2Font

    return frozenset(map(chr, FT2Font(file).get_charmap())) | {' '}


@lru_cache
def _font_file(characters: frozenset[str]) -> str:
    """The first font file with most of the characters: DejaVu Sans, then those of the system; '' without a font."""
    try:
        import matplotlib
        from matplotlib.font_manager import findSystemFonts
        from PIL import ImageFont  # noqa: F401
    except ImportError:
        return ''
    best, count = '', -1
    styled = re.compile('bold|italic|oblique|mono|black|light|thin|condensed|narrow', re.IGNORECASE)
    others = sorted(findSystemFonts(), key=lambda path: (bool(styled.search(os.path.basename(path))), path))
    for file in (os.path.join(matplotlib.get_data_path(), 'fonts', 'ttf', 'DejaVuSans.ttf'), *others):
        with suppress(OSError, RuntimeError, ValueError):  # bitmaps only, or damaged
            _face(file, 12)
            if (found := len(characters & _characters(file))) > count:
                best, count = file, found
        if count == len(characters):
            break
    return best


def names_for_matplotlib(names: Sequence[str]) -> list[str]:
    """Has matplotlib draw with a font that has the names' characters; returns them with escapes for what it lacks."""
    from matplotlib import font_manager, rcParams

    if all(map(str.isascii, names)) or not (file := _font_file(frozenset(''.join(names)))):
        return [printable(visible(name)) for name in names]
    font_manager.fontManager.addfont(file)
    family = font_manager.FontProperties(fname=file).get_name()
    rcParams['font.sans-serif'] = [family, *(one for one in rcParams['font.sans-serif'] if one != family)]
    missing = {ord(one): printable(one) for one in set(''.join(names)) - _characters(file)}
    return [visible(name).translate(missing) for name in names]


def draw(
    image: np.ndarray,
    boxes: np.ndarray,
    names: Sequence[str],
    colors: Sequence[Color],
    masks: Iterable[np.ndarray | None] = (),
    notes: Sequence[str] = (),
    below: bool = False,
) -> np.ndarray:
    """Returns a copy of an image (H, W, 3) uint8 BGR with boxes (N, 4) of corners, names on plates, and masks.

    Later boxes are drawn over earlier ones. A plate has a name and a note, such as a score. It is above its box, or
    where it covers the least of other plates and of objects smaller than a plate: inside the box, below it or beside
    it. A name loses its middle where the plate would be wider than a third of the image and than the box. Where plates
    would cover too much, they have notes only, or are left out, and a legend has the names.

    Args:
        masks: bool (H, W), filled at half strength; None leaves one out.
        below: Put the legend below the image, which makes the result higher, and not on its last rows, where it has at
                most a third of the image.
    """
    picture = np.array(image, order='C')
    height, width = image.shape[:2]
    long = max(height, width)
    thickness = max(2, round(long / 320))
    style = max(0.4, long / 1200), long // 700 + 1
    for mask, color in zip(masks, colors, strict=False):
        if mask is not None:
            picture[mask] = picture[mask] // 2 + np.array(color, np.uint8) // 2
    corners = np.clip(
        np.nan_to_num(np.asarray(boxes, float)).reshape(-1, 4), -width - height, 2 * (width + height)
    )  # 32 bits
    whole = corners.astype(int).tolist()
    hashable = [(int(b), int(g), int(r)) for b, g, r in colors]
    objects = list(zip(whole, names, notes or [''] * len(whole), hashable, strict=True))
    entries = sorted({(name, color) for _, name, _, color in objects if name})
    plates = [_plate(name, note, max(width // 3, box[2] - box[0]), style, color) for box, name, note, color in objects]
    if crowded := _covered(plates) > COVERED * height * width:
        plates = [_plate('', note, width, style, color) for *_, note, color in objects]
        if _covered(plates) > COVERED * height * width:
            plates = [None] * len(objects)
    taken = np.zeros((height, width), bool)  # by plates and small objects
    for ((left, top, right, bottom), *_, color), plate in zip(objects, plates, strict=True):
        edge = thickness if min(right - left, bottom - top) > 6 * thickness else max(1, thickness // 3)
        cv2.rectangle(picture, (left, top), (right, bottom), (0, 0, 0), edge + 2 * (edge > 1))
        cv2.rectangle(picture, (left, top), (right, bottom), color, edge)
        if plate is not None and (right - left) * (bottom - top) < plate.size / 3:
            taken[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = True
    for (box, *_), plate in reversed(list(zip(objects, plates, strict=True))):
        if plate is not None:
            plate = plate[:height, :width]
            tall, wide = plate.shape[:2]
            places = [np.s_[y : y + tall, x : x + wide] for x, y in _places(box, wide, tall, width, height, thickness)]
            area = min(places, key=lambda place: np.count_nonzero(taken[place]))  # the first of equal ones
            taken[area] = True
            picture[area] = plate
    return _with_legend(picture, entries, style, below) if crowded and entries else picture


def draw_resized(
    image: np.ndarray,
    long_side: int,
    corners: np.ndarray,
    names: Sequence[str],
    colors: Sequence[Color],
    masks: Sequence[np.ndarray | None] = (),
    notes: Sequence[str] = (),
) -> np.ndarray:
    """Draws N objects on a copy (H', W', 3) of an image (H, W, 3) that is resized to a long side in pixels.

    The corners (N, 4) and the masks (H, W) bool are those of the image. A legend is below the copy.
    """
    height, width = image.shape[:2]
    scale = long_side / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA)
    resized = [None if mask is None else cv2.resize(mask.astype(np.uint8), size) > 0 for mask in masks]
    boxes = corners * [*size, *size] / [width, height, width, height]
    return draw(small, boxes, names, colors, resized, notes, below=True)


def _covered(plates: Sequence[np.ndarray | None]) -> float:
    return sum(plate.size / 3 for plate in plates if plate is not None)


def _plate(name: str, note: str, most: int, style: tuple[float, int], color: Color) -> np.ndarray | None:
    """A plate of at most a width in pixels, if its note is not wider; None without a text."""
    room = most - text_plate(f'{note} ', *style, color).shape[1]
    return text_plate(f'{cut_middle(name, room, *style)} {note}'.strip(), *style, color) if name or note else None


@lru_cache(4096)
def cut_middle(text: str, most: int, size: float, line: int) -> str:
    """Returns a text of at most a width in pixels, its middle replaced by dots; at least its first character."""
    shown, kept = text, len(text)
    while kept > 1 and (length := Text(shown, size, line).length) > most:
        kept = min(kept - 1, max(1, kept * most // length))
        shown = f'{text[: kept - kept // 2]}...{text[len(text) - kept // 2 :]}'
    return shown


def _with_legend(
    picture: np.ndarray, entries: Sequence[tuple[str, Color]], style: tuple[float, int], below: bool
) -> np.ndarray:
    """Puts names on plates of their colors below a picture (H, W, 3), or on its last rows, a third of it at most."""
    width, x, rows = picture.shape[1], 0, 1
    drawn = (_plate(name, '', width, style, color) for name, color in entries)
    plates = [plate[:, :width] for plate in drawn if plate is not None]
    tall, places = max(map(len, plates)), []
    for plate in plates:
        if x + plate.shape[1] > width:
            x, rows = 0, rows + 1
        places.append((x, (rows - 1) * tall))
        x += plate.shape[1] + tall // 4
    strip = np.full((rows * tall, width, 3), 255, np.uint8)
    if not below:
        end = len(picture) - min(rows, len(picture) // 3 // tall) * tall
        picture, strip = picture[:end], picture[end:]
        places = [place for place in places if place[1] < len(strip)]
        plates = plates[: len(places)]
    for (x, y), plate in zip(places, plates, strict=True):
        area = strip[y : y + len(plate), x : x + plate.shape[1]]
        area[:] = plate[: len(area)]
    return np.concatenate([picture, strip])


def _places(box: Sequence[int], wide: int, tall: int, width: int, height: int, edge: int) -> Iterator[tuple[int, int]]:
    """Yields the left upper corners of a plate in an image, the preferred ones first."""
    left, top, right, bottom = box
    rows = [top - tall - edge // 2, top + edge, bottom + edge, bottom - tall - edge]
    xs = left - edge // 2, right - wide + edge
    places = [(x, y) for x in xs for y in rows] + [(right + edge, top), (left - wide - edge, top)]
    places += [(left, top + sign * step * tall) for step in range(1, height // tall) for sign in (1, -1)]
    for x, y in places:
        yield min(max(x, 0), width - wide), min(max(y, 0), height - tall)


@lru_cache(4096)
def text_plate(text: str, size: float, line: int, color: Color) -> np.ndarray:
    """Returns a text on a plate of its color, (h, w, 3) uint8 BGR, in black or white."""
    shown, margin = Text(text, size, line), 2 + line // 2
    plate = np.full((shown.tall + shown.below + 2 * line, shown.length + 2 * margin, 3), color, np.uint8)
    blue, green, red = color
    shade = 0 if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else 255
    shown.draw(plate, margin, shown.tall + line, (shade, shade, shade))
    return plate
