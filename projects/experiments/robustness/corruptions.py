"""Corruptions of ImageNet-C (Hendrycks & Dietterich, 2019): on the fly by the imagecorruptions package, or from files.

The package has the corruptions of Michaelis et al., 2019, for images of any size from 32 x 32. The published files of
ImageNet-C have other elastic transforms, and were saved as JPEG.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import imagecorruptions
import numpy as np

from experiments.robustness import CORRUPTIONS, SEVERITIES
from tokennorm.datasets.contact_sheet import tile

SMALLEST = 32  # side in pixels
_OWN_SEED = ('impulse_noise', 'glass_blur')  # have their own generator; the others use numpy's global one


class CorruptionError(ValueError):
    """An image cannot be corrupted."""


def corrupt(image: np.ndarray, corruption: str, severity: int, seed: int) -> np.ndarray:
    """Returns a corrupted copy of an image, the same for the same seed. numpy's global generator does not change.

    Args:
        image: (H, W, 3) uint8 BGR, as mmcv reads it, at least 32 x 32.
        corruption: One of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: Below 2 ** 32.

    Returns:
        (H, W, 3) uint8 BGR.
    """
    if corruption not in CORRUPTIONS:
        raise ValueError(f'corruption={corruption!r} must be one of {", ".join(CORRUPTIONS)}')
    if severity not in SEVERITIES:
        raise ValueError(f'severity={severity} must be 1, 2, 3, 4 or 5')
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise CorruptionError(f'image of {image.dtype} {image.shape} must be of uint8 (H, W, 3) to be corrupted')
    if min(image.shape[:2]) < SMALLEST:
        height, width = image.shape[:2]
        raise CorruptionError(f'image of {width} x {height} pixels: corruptions need at least {SMALLEST} x {SMALLEST}')
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        rgb = imagecorruptions.corrupt(
            np.ascontiguousarray(image[..., ::-1]),
            severity,
            corruption,
            **(dict(seed=seed) if corruption in _OWN_SEED else {}),
        )
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return np.ascontiguousarray(rgb[..., ::-1])


def image_seed(path: str, corruption: str, severity: int) -> int:
    """Returns the seed of an image under a corruption and severity, from the last folder and the name of its path."""
    name = '/'.join(path.replace('\\', '/').split('/')[-2:])
    return zlib.crc32(f'{name} {corruption} {severity}'.encode())


class CorruptImage:
    """Step of a data pipeline that corrupts `img`, with a seed from its `img_path`.

    Args:
        published: Folder of ImageNet-C's files, which replace the image. They were cropped before they were corrupted.
            None corrupts on the fly.

    Attributes:
        cell: A corruption and its severity; None leaves images unchanged.
    """

    def __init__(self, published: Path | None = None) -> None:
        self.published = published
        self.cell: tuple[str, int] | None = None

    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        if self.cell is not None:
            path = results['img_path']
            if self.published is not None:
                results['img'] = self._read(Path(path), results['img'].shape)
                return results
            try:
                results['img'] = corrupt(results['img'], *self.cell, seed=image_seed(path, *self.cell))
            except CorruptionError as error:
                raise CorruptionError(f'{path}: {error}') from None
        return results

    def _read(self, path: Path, shape: tuple[int, ...]) -> np.ndarray:
        corruption, severity = self.cell
        file = self.published / corruption / str(severity) / path.parent.name / path.name
        image = cv2.imread(str(file))
        if image is None:
            raise CorruptionError(
                f'{file} not found, or not an image; --published has DIR/CORRUPTION/SEVERITY/CLASS/image'
            )
        if image.shape != shape:
            raise CorruptionError(f'{file} is {image.shape}, and the config crops images to {shape}')
        return image


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
