"""Zero padding to whole patches or windows."""

import torch
import torch.nn.functional as F
from torch import Tensor


def pad_to_multiple(x: Tensor, size: int | tuple[int, int], channels_last: bool = False) -> Tensor:
    """Adds zeros at the right and the bottom until `size` divides height and width: mmdet's 'corner' padding.

    x is (B, C, H, W), or (B, H, W, C) with `channels_last`. `size` is one number, or one for the height and one for the
    width.
    """
    height, width = x.shape[1:3] if channels_last else x.shape[-2:]
    rows, columns = (size, size) if isinstance(size, int) else size
    # F.pad would copy. An exported graph must not depend on the sides of its example.
    if not torch.compiler.is_exporting() and height % rows == 0 and width % columns == 0:
        return x
    padding = (0, round_up(width, columns) - width, 0, round_up(height, rows) - height)
    return F.pad(x, (0, 0, *padding) if channels_last else padding)


def round_up(size: int, divisor: int) -> int:
    """Returns the smallest multiple of a divisor that is not below a size, in a form that exporters can convert."""
    return (size + divisor - 1) // divisor * divisor


def crop(x: Tensor, height: int, width: int) -> Tensor:
    """Undoes the padding of a token grid: (B, H, W, C) -> (B, height, width, C)."""
    if not torch.compiler.is_exporting():
        return x[:, :height, :width]
    # A slice would compare symbolic sides, which the exporter cannot prove.
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    return x.index_select(1, rows).index_select(2, columns)
