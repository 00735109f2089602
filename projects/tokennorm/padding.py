"""Sizes of the images in a padded batch, from the data preprocessor to the normalizers.

Detectors batch images of different sizes by adding zeros at the right and the bottom. Statistics over tokens must
leave these zeros out. So the data preprocessor notes the image sizes on the batch tensor, the backbone reads them
there, and its normalizers get the rectangle of each image in tokens. A note on the batch itself cannot outlive the
batch or reach another one. A new tensor made from the batch (a cast, `detach`, another memory format) has no note; the
first such batch in a process is reported by a warning.
"""

import warnings
from collections.abc import Sequence

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
        images.image_sizes = torch.tensor(sizes, dtype=torch.int32, device=images.device)  # type: ignore[attr-defined]
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
