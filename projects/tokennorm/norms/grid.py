"""Checks of the inputs of normalizers with statistics across tokens."""

from torch import Tensor


def check_grid(owner: str, x: Tensor, num_features: int, valid: Tensor | None) -> None:
    """Raises a ValueError unless x is (B, H, W, num_features) and `valid` is None or integers (B, 2).

    Read as a grid, (B, H * W, C) would silently get statistics over other axes.
    """
    if x.ndim != 4 or x.shape[-1] != num_features:
        raise ValueError(f'{owner} takes (B, H, W, {num_features}), got {tuple(x.shape)}')
    check_valid(owner, x, valid)


def check_valid(owner: str, x: Tensor, valid: Tensor | None) -> None:
    """Raises a ValueError unless `valid` is None or integers (B, 2)."""
    if valid is not None and (valid.shape != (x.shape[0], 2) or valid.is_floating_point()):
        raise ValueError(
            f'{owner}: valid of shape {tuple(valid.shape)} and {valid.dtype} must be integers (B, 2), a height and a '
            f'width in tokens for each of the {x.shape[0]} images'
        )
