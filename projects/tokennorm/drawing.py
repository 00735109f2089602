"""Draws boxes, masks and short texts on images, with numpy, OpenCV and Pillow."""

import colorsys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

Color = tuple[int, int, int]
_PIXELS = 29  # of a font whose letters are as tall as those of OpenCV's font of size 1


def color_of(label: int) -> Color:
    """Returns a bright BGR color. Hues step by the golden ratio, so that neighbors differ strongly."""
    red, green, blue = colorsys.hsv_to_rgb((0.02 + int(label) * 0.61803) % 1, 0.6, 1.0)
    return round(255 * blue), round(255 * green), round(255 * red)


def printable(text: str) -> str:
    """Returns a text in the characters that OpenCV's font has: without accents, and ? for others."""
    plain = (one for one in unicodedata.normalize('NFKD', text) if not unicodedata.combining(one))
    return ''.join(plain).encode('ascii', 'replace').decode()


def draw(
    image: np.ndarray,
    boxes: np.ndarray,
    texts: Sequence[str],
    colors: Sequence[Color],
    masks: Iterable[np.ndarray | None] = (),
    text_size: float | None = None,
    thickness: int | None = None,
) -> np.ndarray:
    """Returns a copy of an image (H, W, 3) uint8 BGR with boxes (N, 4) of corners, texts on plates, and masks.

    Later boxes are drawn over earlier ones. The plate of a text is above its box, or where it covers the least of the
    plates of later boxes: inside the box, below it or beside it. A mask, bool (H, W), is filled at half strength; None
    leaves it out. `text_size` is that of OpenCV's font, `thickness` that of the boxes; by default they fit the image.
    """
    picture = np.array(image, order='C')
    height, width = image.shape[:2]
    long = max(height, width)
    thickness = thickness or max(2, round(long / 320))
    pixels = max(11, round(_PIXELS * (text_size or max(0.4, long / 1200))))
    for mask, color in zip(masks, colors, strict=False):
        if mask is not None:
            picture[mask] = picture[mask] // 2 + np.array(color, np.uint8) // 2
    corners = np.clip(
        np.nan_to_num(np.asarray(boxes, float)).reshape(-1, 4), -width - height, 2 * (width + height)
    )  # 32 bits
    whole = corners.astype(int).tolist()
    for (left, top, right, bottom), color in zip(whole, colors, strict=True):
        cv2.rectangle(picture, (left, top), (right, bottom), (0, 0, 0), thickness + 2)
        cv2.rectangle(picture, (left, top), (right, bottom), color, thickness)
    taken = np.zeros((height, width), bool)  # by plates
    for box, text, color in reversed(list(zip(whole, texts, colors, strict=True))):
        if text:
            plate = text_plate(text, pixels, color)[:height, :width]
            tall, wide = plate.shape[:2]
            places = [np.s_[y : y + tall, x : x + wide] for x, y in _places(box, wide, tall, width, height, thickness)]
            area = min(places, key=lambda place: np.count_nonzero(taken[place]))  # the first of equal ones
            taken[area] = True
            picture[area] = plate
    return picture


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
def text_plate(text: str, pixels: int, color: Color) -> np.ndarray:
    """Returns a text on a plate of its color, (h, w, 3) uint8 BGR, in a font of this size that has its characters."""
    from PIL import Image, ImageDraw

    path, text = font_for(text)
    font = _font(path, pixels)
    ascent, descent = font.getmetrics()
    left, _, right, _ = font.getbbox(text)
    size = max(1, round(right - min(left, 0)) + 4), ascent + descent
    shape = Image.new('L', size)
    ImageDraw.Draw(shape).text((2 - min(left, 0), 0), text, fill=255, font=font)
    ink = np.asarray(shape, np.float32)[..., None] / 255
    blue, green, red = color
    shade = 0 if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else 255
    return np.uint8(np.rint(ink * shade + (1 - ink) * np.array(color, np.float32)))


@cache
def _font(path: str, pixels: int) -> 'FreeTypeFont':
    from PIL import ImageFont

    return ImageFont.truetype(path, pixels)


@lru_cache(4096)
def font_for(text: str) -> tuple[str, str]:
    """Returns the file of a font, and the text with ? for characters that it lacks.

    It is matplotlib's, or the font of the system that has the most of the characters.
    """
    from matplotlib import get_data_path
    from matplotlib.font_manager import fontManager

    own = f'{get_data_path()}/fonts/ttf/DejaVuSans.ttf'
    needed = {one for one in text if not one.isspace()}
    if all(ord(one) in _characters(own) for one in needed):
        return own, text
    upright = [one for one in fontManager.ttflist if one.style == 'normal' and 'Last Resort' not in one.name]  # squares
    files = [own, *sorted({one.fname for one in upright if one.weight == 400})]
    best = max(files, key=lambda path: sum(ord(one) in _characters(path) for one in needed))  # the first of equal ones
    return best, ''.join(one if one.isspace() or ord(one) in _characters(best) else '?' for one in text)


@cache
def _characters(path: str) -> frozenset[int]:
    """Code points that a font has a glyph for; none of a file that cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
