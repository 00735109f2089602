"""Checks of grids of tokens (B, H, W, C), and means and variances over them, with padding left out.

Variances are biased (divided by the count), as in the papers of all normalizers here.
"""

import torch
from torch import Tensor


def check_grid(owner: str, x: Tensor, num_features: int, valid: Tensor | None) -> None:
    """Raises a ValueError unless x is (B, H, W, num_features) and `valid` is None or integers (B, 2).

    Read as a grid, (B, H * W, C) would silently get statistics over other axes.
    """
    if x.ndim != 4 or x.shape[-1] != num_features:
        raise ValueError(f'{owner} takes (B, H, W, {num_features}), got {tuple(x.shape)}')
    check_valid(owner, x, valid)


def check_valid(owner: str, x: Tensor, valid: Tensor | None) -> None:
    """Raises a ValueError unless `valid` is None or an int32 or int64 tensor (B, 2)."""
    if valid is None:
        return
    is_tensor = isinstance(valid, Tensor)
    # x.shape[0], not len(x), which would fix the batch size of an exported graph.
    if not is_tensor or valid.shape != (x.shape[0], 2) or valid.dtype not in (torch.int32, torch.int64):
        given = f'of shape {tuple(valid.shape)} and {valid.dtype}' if is_tensor else repr(valid)
        raise ValueError(
            f'{owner}: valid {given} must be an int32 or int64 tensor (B, 2), a height and a width in tokens for each '
            f'of the {len(x)} images'
        )


def tokens_inside(x: Tensor, valid: Tensor | None) -> Tensor | None:
    """Returns the mask of the tokens of x (B, H, W, C) that are image and not padding, bool (B, H, W, 1).

    `valid` is the height and width, in tokens, of the rectangle at the top left that is image, int (B, 2). Sides below
    1 count as 1, so that every image has at least one token. None, for a batch without padding, gives None.
    """
    if valid is None:
        return None
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape[1:3])
    height, width = (side[:, None] for side in valid.clamp(min=1).unbind(dim=1))
    return ((rows < height)[:, :, None] & (columns < width)[:, None, :])[..., None]


def finite_padding(x: Tensor, inside: Tensor | None) -> Tensor:
    """x (B, H, W, C) with 0 for values in the padding that are not finite: 0 times NaN is NaN, in gradients too."""
    return x if inside is None else torch.where(inside | (x.abs() < torch.inf), x, 0)


def image_moments(x: Tensor, inside: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel over an image's tokens (B, H, W, C): two tensors (B, 1, 1, C)."""
    if inside is None:
        var, mean = torch.var_mean(x, dim=(1, 2), correction=0, keepdim=True)
        return mean, var
    share = inside.to(x.dtype) / inside.sum(dim=(1, 2), keepdim=True)
    mean = (x * share).sum(dim=(1, 2), keepdim=True)
    return mean, ((x - mean).square() * share).sum(dim=(1, 2), keepdim=True)


def merge_moments(mean: Tensor, var: Tensor, dim: int, share: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and variance of the union of several sets, from the moments of each set along `dim`, kept with length 1.

    `share` is the fraction of the whole in each set and sums to 1 along `dim`; None is sets of equal size.
    """
    share = 1 / mean.shape[dim] if share is None else share
    merged = (mean * share).sum(dim, keepdim=True)
    offset = mean - merged
    return merged, ((var + offset * offset) * share).sum(dim, keepdim=True)


def normalize(x: Tensor, mean: Tensor, var: Tensor, eps: float, weight: Tensor, bias: Tensor) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, where the moments broadcast to x."""
    return (x - mean) * (torch.rsqrt(var + eps) * weight) + bias
