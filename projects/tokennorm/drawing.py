"""Draws boxes, masks and short texts on images, with numpy and OpenCV."""

import colorsys
import unicodedata
from collections.abc import Iterable, Sequence

import cv2
import numpy as np

Color = tuple[int, int, int]


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
) -> np.ndarray:
    """Returns a copy of an image (H, W, 3) uint8 BGR with boxes (N, 4) of corners, texts above them, and masks.

    Later boxes are drawn over earlier ones. A text that would cover that of a later box moves into its own box, or is
    left out. A mask, bool (H, W), is filled at half strength; None leaves it out. `text_size` is that of OpenCV's
    font; by default it fits the image.
    """
    picture = np.array(image, order='C')
    height, width = image.shape[:2]
    long = max(height, width)
    thickness, size, line = max(1, round(long / 320)), text_size or max(0.4, long / 1200), long // 700 + 1
    for mask, color in zip(masks, colors, strict=False):
        if mask is not None:
            picture[mask] = picture[mask] // 2 + np.array(color, np.uint8) // 2
    corners = np.clip(
        np.nan_to_num(np.asarray(boxes, float)).reshape(-1, 4), -width - height, 2 * (width + height)
    )  # 32 bits
    for (left, top, right, bottom), color in zip(corners.astype(int).tolist(), colors, strict=True):
        cv2.rectangle(picture, (left, top), (right, bottom), (0, 0, 0), thickness + 2)
        cv2.rectangle(picture, (left, top), (right, bottom), color, thickness)
    taken = np.zeros((height, width), bool)  # by texts
    for (left, top, *_), text in reversed(list(zip(corners.astype(int).tolist(), texts, strict=True))):
        text = printable(text)
        (length, tall), below = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, size, line)
        x, above = max(min(left, width - length) + 1, 1), max(top - 2 * thickness, tall + 2)
        for y in (above, max(above, top) + tall + 2 * thickness):
            area = np.s_[max(y - tall, 0) : y + below, x : x + length]
            if not taken[area].any():
                taken[area] = True
                for shade, wide in (((0, 0, 0), line + 2), ((255, 255, 255), line)):
                    cv2.putText(picture, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, size, shade, wide, cv2.LINE_AA)
                break
    return picture
