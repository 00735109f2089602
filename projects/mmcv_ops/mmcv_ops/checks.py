"""Errors of inputs that do not fit together: mmcv's compiled operators read outside of their memory, or crash."""

from torch import Tensor


def check_boxes(function: str, boxes: Tensor, *scores: Tensor) -> None:
    """Raises ValueError where boxes are integers, or have another number of scores."""
    if not boxes.is_floating_point():
        raise ValueError(f'{function}: boxes are {boxes.dtype}, expected floating point. Convert them with .float().')
    for other in scores:
        if other.shape[0] != boxes.shape[0]:
            raise ValueError(
                f'{function}: {boxes.shape[0]} boxes and {other.shape[0]} scores, expected one score per box'
            )


def check_pairs(function: str, first: Tensor, second: Tensor) -> None:
    """Raises ValueError where two tensors are not of equal length."""
    if first.shape[0] != second.shape[0]:
        raise ValueError(f'{function}: {first.shape[0]} and {second.shape[0]} rows, expected pairs')


def check_shapes(function: str, **tensors: tuple[Tensor, tuple]) -> None:
    """Raises ValueError for a tensor of another shape. None is any size."""
    for name, (tensor, shape) in tensors.items():
        fits = len(shape) == tensor.dim() and all(e in (None, s) for e, s in zip(shape, tensor.shape, strict=True))
        if not fits:
            expected = ', '.join('any' if size is None else str(size) for size in shape)
            raise ValueError(f'{function}: {name} has the shape {tuple(tensor.shape)}, expected ({expected})')
