"""Paints planned shapes: background, clutter, textured objects with shadows, light, blur and noise.

Images are (3, H, W) float32 in [0, 1], blue, green, red, until the last step of `paint`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

HUES, HUE_SPREAD = (15.0, 200.0, 290.0, 105.0), 24.0  # degrees: each class's mean, and the deviation around it
MIN_COLOR_DISTANCE = 32.0  # CIE76 units between an object's color and its surroundings


@dataclass(frozen=True)
class Shape:
    """One object."""

    label: int  # index of its class
    size: float  # in pixels
    alpha: np.ndarray  # anti-aliased coverage inside the image, (S, S)
    full_area: float  # area in pixels, inside and outside the image
    surface: str | None = None  # 'plain', 'stripes', 'speckle' or 'cloud'; None draws one at random
    contrast: float = 1.0  # factor of the surface's contrast

    @property
    def mask(self) -> np.ndarray:
        """The pixels that it covers, (S, S) bool."""
        return self.alpha >= 0.5


def fractal_noise(rng: np.random.Generator, height: int, width: int, roughness: float = 1.0) -> np.ndarray:
    """Returns noise (H, W) of mean 0 and deviation 1; `roughness` is an octave's weight relative to the coarser one."""
    octaves = range(int(np.log2(min(height, width))) - 1, 0, -1)
    field, weight = rng.standard_normal((2, 2), np.float32), 1.0
    for octave in octaves:
        cells = (-(-height >> octave), -(-width >> octave))
        weight *= roughness
        field = cv2.resize(field, cells[::-1], interpolation=cv2.INTER_CUBIC)
        field += weight * rng.standard_normal(cells, np.float32)
    field = cv2.resize(field, (width, height), interpolation=cv2.INTER_CUBIC)
    mean, deviation = cv2.meanStdDev(field)
    return (field - mean.item()) / (deviation.item() + 1e-6)


def position_along(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Returns the coordinate (H, W) in pixels along a random direction, 0 at the center."""
    turn = rng.uniform(0, 2 * np.pi)
    y, x = (np.arange(n, dtype=np.float32) - (n - 1) / 2 for n in (height, width))
    return x[None, :] * np.float32(np.cos(turn)) + y[:, None] * np.float32(np.sin(turn))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The logistic function, which does not overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def blend(image: np.ndarray, color: np.ndarray, alpha: np.ndarray) -> None:
    """Blends `color`, (3,) or (3, H, W), over `image` with opacity `alpha` (H, W), in place."""
    color = np.asarray(color, np.float32)
    image += ((color[:, None, None] if color.ndim == 1 else color) - image) * alpha


def paint_background(rng: np.random.Generator, size: int) -> np.ndarray:
    """Returns one to three regions of 1/f noise, each around its own color, (3, S, S)."""
    image = None
    for _ in range(int(rng.integers(1, 4))):
        shade = rng.uniform(0.05, 0.16) * fractal_noise(rng, size, size, rng.uniform(0.5, 1.0))
        shade += rng.uniform(0, 0.25) / size * position_along(rng, size, size)
        roughness, strength = rng.uniform(0.4, 0.9), rng.uniform(0.01, 0.06)
        base = rng.uniform(0.2, 0.75) + rng.normal(0, 0.08, 3)
        region = np.stack([value + shade + strength * fractal_noise(rng, size, size, roughness) for value in base])
        if image is None:
            image = region.astype(np.float32)
        else:
            border = position_along(rng, size, size) * (3 / size) + rng.normal(0, 0.5)
            border += rng.uniform(0.1, 0.8) * fractal_noise(rng, size, size, 0.6)
            blend(image, region, sigmoid(border * rng.uniform(3, 60)))
    return image


def paint_clutter(rng: np.random.Generator, image: np.ndarray) -> None:
    """Paints 4 to 14 strokes, irregular blobs, texture patches and edges, which resemble no class, in place."""
    size = image.shape[-1]
    mean = image.mean((1, 2))
    for _ in range(int(rng.integers(4, 15))):
        kind = rng.choice(['stroke', 'blob', 'patch', 'edge'], p=[0.4, 0.25, 0.2, 0.15])
        if kind == 'stroke':
            canvas = np.zeros((size, size), np.uint8)
            steps = rng.normal(0, size / 12, (6, 2)) + rng.normal(0, size / 12, 2)
            points = rng.uniform(0, size, 2) + np.cumsum(steps, axis=0)
            cv2.polylines(canvas, [points.astype(np.int32)], False, 255, int(rng.integers(1, 5)), cv2.LINE_AA)
            alpha = canvas * np.float32(1 / 255)
        elif kind == 'edge':
            alpha = sigmoid((position_along(rng, size, size) + rng.uniform(-size / 2, size / 2)) * rng.uniform(0.1, 2))
        else:
            center, radius = rng.uniform(0, size, (2, 1)), rng.uniform(0.04, 0.2, (2, 1)) * size
            bump = np.outer(*np.exp(-0.5 * ((np.arange(size) - center) / radius) ** 2).astype(np.float32))
            if kind == 'blob':
                field = 2 * bump - 1 + 1.2 * np.sqrt(bump) * fractal_noise(rng, size, size, 0.8)
                alpha = sigmoid(field * rng.uniform(3, 12))
            else:
                waves = np.sin(position_along(rng, size, size) * (2 * np.pi / rng.uniform(3, 14)))
                alpha = np.minimum(2 * bump, 1) * (0.5 + 0.5 * waves)
        alpha = cv2.GaussianBlur(alpha, (0, 0), rng.uniform(0.5, 2.5))
        blend(image, mean + rng.normal(0, 0.22) + rng.normal(0, 0.08, 3), alpha * rng.uniform(0.2, 0.8))


def random_color(rng: np.random.Generator, label: int, surroundings: np.ndarray) -> np.ndarray:
    """Returns a BGR color (3,) near the hue of its class, at least `MIN_COLOR_DISTANCE` from `surroundings` (3,)."""
    while True:
        hue = (HUES[label] + HUE_SPREAD * rng.standard_normal(32)) % 360
        hsv = np.stack([hue, rng.uniform(0.35, 0.95, 32), rng.uniform(0.3, 0.95, 32)], axis=1)
        colors = cv2.cvtColor(hsv[None].astype(np.float32), cv2.COLOR_HSV2BGR)[0]
        both = np.clip(np.vstack([surroundings, colors]), 0, 1).astype(np.float32)
        lab = cv2.cvtColor(both[None], cv2.COLOR_BGR2LAB)[0]
        far = np.linalg.norm(lab[1:] - lab[0], axis=1) >= MIN_COLOR_DISTANCE
        if far.any():
            return colors[far.argmax()]


def paint_shape(rng: np.random.Generator, image: np.ndarray, shape: Shape, light: np.ndarray) -> None:
    """Paints the shape's shadow along `light` (2,), then the shape with its color, texture and shading, in place."""
    height = rng.uniform(0.04, 0.16) * shape.size
    margin = int(4 + 4 * height)
    rows, columns = (np.flatnonzero(shape.alpha.any(axis)) for axis in (1, 0))
    window = tuple(slice(max(hit[0] - margin, 0), hit[-1] + margin) for hit in (rows, columns))
    image, alpha = image[(slice(None), *window)], shape.alpha[window]
    h, w = alpha.shape

    shadow = cv2.warpAffine(alpha, np.float32([[1, 0, light[0] * height], [0, 1, light[1] * height]]), (w, h))
    shadow = cv2.GaussianBlur(shadow, (0, 0), 0.5 + rng.uniform(0.4, 1.0) * height)
    image *= 1 - rng.uniform(0, 0.6) * shadow
    ring = cv2.dilate(alpha, np.ones((7, 7), np.uint8)) - alpha
    color = random_color(rng, shape.label, (image * ring).sum((1, 2)) / ring.sum())

    kind = rng.choice(['plain', 'stripes', 'speckle', 'cloud'])
    kind = shape.surface or kind
    texture = 0.25 * fractal_noise(rng, h, w, 0.9)
    if kind == 'stripes':
        period = max(3.0, rng.uniform(0.12, 0.4) * shape.size)
        texture += np.tanh(3 * np.sin(position_along(rng, h, w) * (2 * np.pi / period) + rng.uniform(0, 6)))
    elif kind == 'speckle':
        texture += 3 * cv2.GaussianBlur(rng.standard_normal((h, w), np.float32), (0, 0), rng.uniform(0.7, 1.6))
    elif kind == 'cloud':
        texture += fractal_noise(rng, h, w, 0.8)
    shading = 1 + rng.uniform(0, 0.25) / shape.size * position_along(rng, h, w)
    surface = color[:, None, None] * shading + shape.contrast * rng.uniform(0.03, 0.12) * texture
    blend(image, surface, cv2.GaussianBlur(alpha, (0, 0), rng.uniform(0.3, 0.7)))


def paint(rng: np.random.Generator, shapes: Sequence[Shape], size: int) -> np.ndarray:
    """Returns an image (S, S, 3) uint8 of the shapes, which are given from back to front."""
    image = paint_background(rng, size)
    paint_clutter(rng, image)
    np.clip(image, 0.02, 0.98, out=image)
    light = rng.uniform(-1, 1, 2)
    for shape in shapes:
        paint_shape(rng, image, shape, light)
    image *= 1 + rng.uniform(0, 0.12) * fractal_noise(rng, size, size, 0.2)
    image = cv2.GaussianBlur(cv2.merge(list(image)), (0, 0), rng.uniform(0.3, 0.8))
    image += rng.uniform(0.005, 0.03) * rng.standard_normal(image.shape, np.float32)
    return np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)
