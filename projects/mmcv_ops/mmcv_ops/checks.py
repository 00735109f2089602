"""Errors of inputs that do not fit together: mmcv's compiled operators read outside of their memory, or crash."""

from torch import Tensor


def check_boxes(function: str, boxes: Tensor, *others: Tensor | None) -> None:
    """Raises ValueError where boxes are integers, or where another tensor has another number of rows."""
    if not boxes.is_floating_point():
        raise ValueError(f'{function}: boxes are {boxes.dtype}, expected floating point. Convert them with .float().')
    for other in others:
        if other is not None and len(other) != len(boxes):
            raise ValueError(f'{function}: {len(boxes)} boxes and {len(other)} scores, expected one score per box')
