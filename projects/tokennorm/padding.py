"""Which part of each image in a padded batch is image, from the data preprocessor to the normalizers.

Detectors batch images of different sizes with zeros at the right and the bottom. Statistics over tokens must not see
them, so a data preprocessor notes the sizes on the batch itself, a backbone reads them there, and its normalizers get
the rectangle of each image in their own cells. On the batch, a note cannot outlive it or meet another one. What makes a
new tensor of it (a cast, `detach`, another memory format) loses the note, and padding is then seen as image.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def note_image_sizes(images: Tensor, sizes: Sequence[tuple[int, int]]) -> Tensor:
    """Notes the height and width of each image on the batch that holds them, and returns the batch.

    Where every image fills the batch nothing is noted.

    Args:
        images: Batch (B, C, H, W).
        sizes: Height and width of each image, in pixels.
    """
    if len(sizes) != len(images):
        raise ValueError(f'{len(sizes)} sizes for a batch of {len(images)} images')
    images.image_sizes = None
    if any(tuple(size) != tuple(images.shape[-2:]) for size in sizes):
        images.image_sizes = torch.tensor(sizes, dtype=torch.int32, device=images.device)
    return images


def image_sizes_of(images: Tensor) -> Tensor | None:
    """What `note_image_sizes` noted on a batch, int (B, 2) in pixels; None for a batch without padding."""
    return getattr(images, 'image_sizes', None)


def whole_tokens(sizes: Tensor, stride: int) -> Tensor:
    """Image sizes in whole tokens of `stride` pixels, int (B, 2), at least 1.

    A token that is partly padding does not count.
    """
    return (sizes // stride).clamp(min=1)


def valid_tokens(images: Tensor, stride: int) -> Tensor | None:
    """Returns the height and width, in tokens of `stride` pixels, of what is image in each grid, int (B, 2).

    None means that all tokens are image: the batch has no padding, and `stride` divides its sides. Where `stride` does
    not divide them, the backbone itself pads the last tokens, which then are no image either.

    Args:
        images: Batch (B, C, H, W), perhaps with the sizes that `note_image_sizes` noted.
        stride: Pixels per token.
    """
    sizes = image_sizes_of(images)
    if sizes is None:
        height, width = images.shape[-2:]
        if height % stride == 0 and width % stride == 0:
            return None
        sizes = torch.tensor([[height, width]], dtype=torch.int32, device=images.device).expand(len(images), 2)
    return whole_tokens(sizes, stride)
