"""Sizes of the images in a padded batch, from the data preprocessor to the normalizers.

Detectors batch images of different sizes by adding zeros at the right and the bottom. Statistics over tokens must
leave these zeros out. So the data preprocessor notes the image sizes on the batch tensor, the backbone reads them
there, and its normalizers get the rectangle of each image in tokens. A note on the batch itself cannot outlive the
batch or reach another one. A new tensor made from the batch (a cast, `detach`, another memory format) has no note; the
first such batch in a process is reported by a warning.
"""

import threading
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class _LastNote:
    """Height and width of the last batch with a note, until a backbone reads it, and whether a warning was given."""

    batch_shape: tuple[int, ...] | None = None
    warned = False


def note_image_sizes(images: Tensor, sizes: Sequence[tuple[int, int]] | Tensor | None) -> Tensor:
    """Notes the height and width of each image on the batch that holds them, and returns the batch.

    The sizes are in pixels: pairs, or what `image_sizes_of` returns: a tensor, or None for a batch without padding.
    """
    height, width = images.shape[-2:]
    sizes = [(height, width)] * len(images) if sizes is None else sizes
    sizes = sizes.tolist() if isinstance(sizes, Tensor) else sizes
    if len(sizes) != len(images):
        raise ValueError(f'{len(sizes)} sizes for a batch of {len(images)} images')
    images.image_sizes = _LastNote.batch_shape = None  # type: ignore[attr-defined]
    if any(tuple(size) != (height, width) for size in sizes):
        noted = torch.tensor(sizes, dtype=torch.int32, device=images.device)
        noted.pairs = sizes  # type: ignore[attr-defined]  # to look at these does not wait for a GPU
        images.image_sizes = noted  # type: ignore[attr-defined]
        _LastNote.batch_shape = (height, width)
    return images


def image_sizes_of(images: Tensor) -> Tensor | None:
    """Returns what `note_image_sizes` noted on a batch, int (B, 2) in pixels; None for a batch without padding.

    A batch without a note counts as unpadded. If it has the height and width of a padded batch whose note nobody read,
    the note was lost on the way, and the first such batch in a process is reported by a warning.
    """
    if hasattr(images, 'image_sizes'):
        _LastNote.batch_shape = None
        return images.image_sizes
    if not torch.compiler.is_compiling() and _LastNote.batch_shape == tuple(images.shape[-2:]):
        _LastNote.batch_shape = None
        if not _LastNote.warned:
            _LastNote.warned = True
            warnings.warn(
                f'The padding of a batch of {images.shape[-2]} x {images.shape[-1]} pixels now counts as image: the '
                'sizes that note_image_sizes noted on it were lost, because a cast, clone or slice made a new tensor. '
                'Expected the tensor of the data preprocessor. Copy the note with '
                'note_image_sizes(new, image_sizes_of(old)).',
                stacklevel=2,
            )
    return None


def valid_tokens(images: Tensor, stride: int | tuple[int, int]) -> Tensor | None:
    """Returns the height and width, in tokens of `stride` pixels, of what is image in each grid, int (B, 2).

    `stride` is one number, or one for the height and one for the width. None means that all tokens are image: the batch
    has no padding, and `stride` divides its sides. Where `stride` does not divide them, the backbone itself pads the
    last tokens, which then are not part of an image either.
    """
    sizes = image_sizes_of(images)
    rows, columns = (stride, stride) if isinstance(stride, int) else stride
    if sizes is None:
        height, width = images.shape[-2:]
        if height % rows == 0 and width % columns == 0:
            return None
        sizes = torch.tensor([[height, width]], dtype=torch.int32, device=images.device).expand(len(images), 2)
    # A token that is partly padding does not count.
    return torch.stack([sizes[:, 0] // rows, sizes[:, 1] // columns], dim=1).clamp(min=1)


def extent_in_tokens(sizes: Tensor, pixels: int, tokens: int) -> Tensor:
    """Returns how many of the `tokens` along a side of `pixels` begin inside of each image, (B,), for its size (B,).

    The stride is the power of two with which `pixels` have so many tokens, rounded up; without one it is the ratio. It
    is computed as a tensor: a comparison would fix the sides of an exported graph.
    """
    strides = 2 ** torch.arange(14, device=sizes.device)
    stride = torch.where(strides * tokens >= pixels, strides, strides[-1]).min()
    is_power = (pixels + stride - 1) // stride == tokens
    stride, per = torch.where(is_power, stride, pixels), torch.where(is_power, 1, tokens)
    return (sizes * per + stride - 1) // stride


class _Pass(NamedTuple):
    """Of one forward pass: sizes of the images, int (B, 2), None if nothing is masked, and of the batch, in pixels."""

    sizes: Tensor | None
    batch: Sequence[int]
    known: dict[str, tuple[Tensor, Tensor]]  # by the size of a feature map: its extents, and which positions are inside


class ImageArea:
    """The part of each feature map that is image, in the current forward pass of a detector.

    It is that of the same image alone: its size is rounded up to a multiple of `divisor`. Layers that
    `tokennorm.mask_padding` chose have it. Each thread has a pass of its own.
    """

    def __init__(self, divisor: int) -> None:
        self.divisor = divisor
        self._passes: dict[int, _Pass] = {}
        self._last = _Pass(None, (), {})

    def __getstate__(self) -> dict[str, Any]:
        return ImageArea(self.divisor).__dict__.copy()  # copies share no forward pass

    def start(self, module: Any, args: tuple[Any, ...]) -> None:
        """A forward pre-hook of the first module that gets the batch: reads the sizes that are noted on it."""
        sizes, batch = image_sizes_of(args[0]), args[0].shape[-2:]
        if sizes is not None:
            pairs = None if torch.compiler.is_exporting() else getattr(sizes, 'pairs', None)
            cut_to = getattr(sizes, 'cut_to', None)  # multiples to which the sides of the batch were cut before
            fills = (cut_to and self.divisor % cut_to == 0) or (pairs and self._fills(pairs, batch))
            sizes = None if fills else (sizes + self.divisor - 1) // self.divisor * self.divisor
        self._last = _Pass(sizes, batch, {})
        if torch.compiler.is_compiling():  # which thread this is cannot be compiled
            self._passes = {}  # layers after it that are not compiled use the last pass, and not an earlier one
        else:
            self._passes[threading.get_ident()] = self._last

    def _fills(self, sizes: Sequence[Sequence[int]], batch: Sequence[int]) -> bool:
        """Returns whether each of the sizes, rounded up, is that of the batch."""
        return all(
            -(-side // self.divisor) * self.divisor >= of_batch
            for size in sizes
            for side, of_batch in zip(size, batch, strict=True)
        )

    def _known(self, height: int, width: int) -> tuple[Tensor, Tensor] | None:
        """The extents (B, 2) and the positions inside, bool (B, height, width), of a feature map."""
        # A backward pass, which may be in another thread, is that of the last forward pass.
        now = self._last if torch.compiler.is_compiling() else self._passes.get(threading.get_ident(), self._last)
        if now.sizes is None:
            return None
        key = f'{height} x {width}'
        if key not in now.known:
            sides = zip(now.sizes.unbind(1), now.batch, (height, width), strict=True)
            extents = torch.stack([extent_in_tokens(*side) for side in sides], dim=1)
            rows, columns = (torch.arange(side, device=extents.device) for side in (height, width))
            now.known[key] = extents, (rows < extents[:, :1])[:, :, None] & (columns < extents[:, 1:])[:, None]
        return now.known[key]

    def extents(self, height: int, width: int) -> Tensor | None:
        """Returns rows and columns of each image in feature maps of this size, int (B, 2); None if all are image."""
        known = self._known(height, width)
        return None if known is None else known[0]

    def inside(self, height: int, width: int) -> Tensor | None:
        """Returns which positions of feature maps of this size are image, bool (B, height, width); None if all are."""
        known = self._known(height, width)
        return None if known is None else known[1]

    def masked(self, x: Tensor, value: float | Tensor = 0.0) -> Tensor:
        """Returns x (B, C, H, W) with a value at the positions of the padding."""
        inside = self.inside(*x.shape[-2:])
        if inside is None:
            return x
        if torch.compiler.is_exporting() and not isinstance(value, Tensor) and value == 0:
            return x * inside[:, None].to(x.dtype)  # onnxruntime's Where is slow; these values are finite
        return torch.where(inside[:, None], x, value)

    def replicated(self, x: Tensor) -> Tensor:
        """Returns x (B, C, H, W) with the last row and column of each image repeated once beyond it.

        RoIAlign interpolates up to half a position beyond the last one, and repeats it at the border of a map.
        """
        extents = self.extents(*x.shape[-2:])
        if extents is None:
            return x
        for axis, extent in ((2, extents[:, 0]), (3, extents[:, 1])):
            extent = extent.reshape(-1, 1, 1, 1)
            of_one = [*x.shape]
            of_one[axis] = 1
            places = torch.arange(x.shape[axis], device=x.device).reshape((-1, 1) if axis == 2 else (1, -1))
            x = torch.where(places == extent, x.gather(axis, (extent - 1).expand(of_one)), x)
        return x
