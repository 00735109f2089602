"""Contact sheet of an image under the corruptions."""

from collections.abc import Sequence

import cv2
import numpy as np

from experiments.robustness.corruptions import corrupt, image_seed
from tokennorm.datasets.drawing import tile


def corruption_sheet(
    image: np.ndarray, path: str, corruptions: Sequence[str], severity: int, long_side: int = 240
) -> np.ndarray:
    """Draws an image and its corruptions at one severity, as the evaluation reads them, with their names.

    Returns:
        (H', W', 3) uint8 BGR, four tiles per row.
    """
    tiles = [_named(image, 'clean', long_side)]
    for corruption in corruptions:
        corrupted = corrupt(image, corruption, severity, image_seed(path, corruption, severity))
        tiles.append(_named(corrupted, f'{corruption} {severity}', long_side))
    return tile(tiles, columns=min(4, len(tiles)))


def _named(image: np.ndarray, name: str, long_side: int) -> np.ndarray:
    scale = long_side / max(image.shape[:2])
    size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
    image = cv2.resize(image, size, interpolation=cv2.INTER_NEAREST if scale > 1 else cv2.INTER_AREA)
    image = cv2.copyMakeBorder(image, 20, 0, 0, 0, cv2.BORDER_CONSTANT, value=(255, 255, 255))
    return cv2.putText(image, name, (2, 14), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (0, 0, 0), 1, cv2.LINE_AA)
