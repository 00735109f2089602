"""Non-maximum suppression as one operator that torch.export can trace and ONNX has.

Letters of the shapes: G independent groups (images, or images x classes), C classes, K candidate boxes.
"""

from typing import Any

import torch
import torchvision
from torch import Tensor


@torch.library.custom_op('tokennorm::nms_keep', mutates_args=())
def nms_keep(boxes: Tensor, scores: Tensor, iou_threshold: float, max_per_class: int) -> Tensor:
    """Returns which candidates survive non-maximum suppression, each class on its own: bool (G, C, K).

    This is not a list of indices, so that its shape does not depend on the data. Boxes (x1, y1, x2, y2) are (G, K, 4),
    scores (G, C, K); those of 0 or less do not take part. At most `max_per_class` survive per group and class.
    """
    keep = torch.zeros_like(scores, dtype=torch.bool)
    for group in range(scores.shape[0]):
        for label in range(scores.shape[1]):
            (taking_part,) = (scores[group, label] > 0).nonzero(as_tuple=True)
            if len(taking_part):
                found = torchvision.ops.nms(boxes[group, taking_part], scores[group, label, taking_part], iou_threshold)
                keep[group, label, taking_part[found[:max_per_class]]] = True
    return keep


@nms_keep.register_fake
def _(boxes: Tensor, scores: Tensor, iou_threshold: float, max_per_class: int) -> Tensor:
    return torch.empty_like(scores, dtype=torch.bool)


def nms_keep_in_onnx(boxes: Any, scores: Any, iou_threshold: float, max_per_class: int) -> Any:
    """Returns `nms_keep` as ONNX operators: NonMaxSuppression, whose indices are scattered into a mask."""
    from onnxscript import opset18 as op

    chosen = op.NonMaxSuppression(
        boxes,
        scores,
        op.Constant(value_ints=[max_per_class]),
        op.Constant(value_floats=[iou_threshold]),
        op.Constant(value_floats=[0.0]),
    )  # (M, 3): group, class, candidate
    nothing = op.Mul(scores, op.Constant(value_float=0.0))
    ones = op.Expand(op.Constant(value_float=1.0), op.Shape(chosen, start=0, end=1))
    return op.Cast(op.ScatterND(nothing, chosen, ones), to=9)


def kept_and_ranked(
    boxes: Tensor, scores: Tensor, labels: Tensor, num_classes: int, iou_threshold: float, max_per_image: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the best survivors of non-maximum suppression within each class.

    Of boxes (B, K, 4), scores (B, K), 0 where there is none, and labels (B, K), the result has the N best of
    each image, highest scores first. Entries beyond the survivors have score 0, label -1 and a box of zeros.
    """
    classes = torch.arange(num_classes, device=labels.device)
    per_class = torch.where(labels[:, None] == classes[:, None], scores[:, None], 0)  # (B, C, K)
    keep = nms_keep(boxes, per_class, iou_threshold, max_per_image).any(dim=1)
    return ranked(boxes, scores * keep, labels, max_per_image)


def ranked(boxes: Tensor, scores: Tensor, labels: Tensor, max_per_image: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the candidates (B, K) with the highest scores; arguments and result as of `kept_and_ranked`."""
    scores, index = scores.topk(torch.sym_min(max_per_image, scores.shape[1]))
    found = scores > 0
    boxes = take(boxes, index) * found[..., None]
    return boxes, scores, torch.where(found, labels.gather(1, index), -1)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Picks rows of each image: x (B, K, D), index (B, N) -> (B, N, D)."""
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


def clip(boxes: Tensor, sizes: Tensor) -> Tensor:
    """Moves the corners of boxes (B, K, 4) into images of `sizes`, heights and widths (B, 2)."""
    limits = sizes.flip(1).repeat(1, 2)[:, None].to(boxes.dtype)  # width, height, width, height
    return boxes.clamp(min=0).minimum(limits)
