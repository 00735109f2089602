"""A whole detector as one module: pixels in, detections out."""

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmdet.models.detectors import SingleStageDetector, TwoStageDetector
from mmdet.models.detectors.base import BaseDetector
from torch import Tensor, nn

from tokennorm.export.dense import UnsupportedError, check_dense_head, decode_dense
from tokennorm.export.two_stage import check_roi_head, detect_boxes, detect_masks
from tokennorm.inference.runtime import SMALLEST_SIDE
from tokennorm.models.data_preprocessors import DetDataPreprocessor

SIDE_MULTIPLE = 32  # the largest stride of a backbone


class WholeDetector(nn.Module):
    """Normalization of pixels, padding, backbone, neck, heads and non-maximum suppression of an mmdet detector.

    Args:
        detector: A one-stage detector, or Mask R-CNN or Faster R-CNN; others raise `UnsupportedError`.
        half: Compute backbone, neck and heads of a copy of it in float16. Pixels, boxes, non-maximum suppression,
            RoIAlign and the inputs and outputs stay float32, and so do DTN's statistics.
        alone: It gets batches of one image that fills them up to a multiple of `multiple`, so that no layer has to
            mask padding, unless `mask_padding` rounds sides up to less.

    Attributes:
        color: Order of the channels that `forward` takes, 'RGB' or 'BGR'.
        smallest_side: Fewest pixels along a side of a batch in a .pt2 file.
    """

    def __init__(self, detector: BaseDetector, half: bool = False, alone: bool = False) -> None:
        super().__init__()
        detector, original = with_constant_padding(detector), detector
        self.detector = copy.deepcopy(detector).half().eval() if half else detector.eval()
        self.dtype = torch.float16 if half else torch.float32
        preprocessor = detector.data_preprocessor
        self.color = 'RGB' if preprocessor._channel_conversion else 'BGR'
        self.notes_sizes = isinstance(preprocessor, DetDataPreprocessor)
        enabled = preprocessor._enable_normalize
        # Not `mean` and `std`: ONNX names of that kind are taken.
        self.register_buffer('pixel_mean', preprocessor.mean.float() if enabled else torch.zeros(3, 1, 1))
        self.register_buffer('pixel_std', preprocessor.std.float() if enabled else torch.ones(3, 1, 1))
        self.alone = alone
        self.fill = float(preprocessor.pad_value)
        self.multiple = preprocessor.pad_size_divisor
        if self.multiple % SIDE_MULTIPLE and detector is not original:
            raise UnsupportedError(f'pad_size_divisor={self.multiple}: Conv2dSame needs a multiple of {SIDE_MULTIPLE}')
        self.two_stages = isinstance(detector, TwoStageDetector)
        if self.two_stages and detector.with_rpn:
            check_dense_head(detector.rpn_head)
            check_roi_head(detector.roi_head)
        elif isinstance(detector, SingleStageDetector):
            check_dense_head(detector.bbox_head)
        else:
            raise UnsupportedError(
                f'{type(detector).__name__} cannot be exported; supported are one-stage detectors, Faster R-CNN and '
                'Mask R-CNN'
            )
        head = detector.bbox_head if not self.two_stages else detector.rpn_head if detector.with_rpn else None
        strides = head.prior_generator.strides if head is not None else []
        self.smallest_side = max([SMALLEST_SIDE, *(max(s) + 1 for s in strides)])  # several tokens at every level
        self.with_masks = self.two_stages and detector.roi_head.with_mask
        self.outputs = ('boxes', 'scores', 'labels') + ('masks',) * self.with_masks

    def forward(self, images: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        """Detects objects in pixels of 0 to 255, float (B, 3, H, W), with channels in the order `color`.

        `sizes` are the height and width of each image without its padding, int (B, 2); 0 is the whole side. Returns the
        result of `kept_and_ranked`, and with masks the probability of the object within each box, (B, N, h, w).
        """
        sides = zip(sizes.unbind(1), images.shape[2:], strict=True)
        sizes = torch.stack([torch.where(given > 0, given, side).clamp(max=side) for given, side in sides], dim=1)
        x = self._prepare(images, sizes).to(self.dtype)
        if self.notes_sizes:
            x.image_sizes = sizes
            sizes.cut_to = self.multiple if self.alone else None
        maps = self.detector.extract_feat(x)
        if not self.two_stages:
            return decode_dense(self.detector.bbox_head, maps, sizes)
        proposals = decode_dense(self.detector.rpn_head, maps, sizes)
        found = detect_boxes(self.detector.roi_head, maps, proposals, sizes)
        if not self.with_masks:
            return found
        boxes, scores, labels = found
        return boxes, scores, labels, detect_masks(self.detector.roi_head, maps, boxes, labels)

    def _prepare(self, images: Tensor, sizes: Tensor) -> Tensor:
        """Normalized pixels, with padding to multiples of `multiple`, as mmdet's data preprocessor makes them."""
        height, width = images.shape[-2:]
        x = (images - self.pixel_mean) / self.pixel_std
        rows = torch.arange(height, device=x.device) < sizes[:, :1]
        columns = torch.arange(width, device=x.device) < sizes[:, 1:]
        x = torch.where((rows[:, :, None] & columns[:, None])[:, None], x, self.fill)
        n = self.multiple
        full_height, full_width = (height + n - 1) // n * n, (width + n - 1) // n * n
        return F.pad(x, (0, full_width - width, 0, full_height - height), value=self.fill)


def with_constant_padding(model: nn.Module) -> nn.Module:
    """Returns a copy of a model whose `Conv2dSame`, of timm's `tf_` models, have constant padding, or the model itself.

    For kernel k and stride s, inputs whose sides are multiples of s get max(k - s, 0) rows and columns of zeros, and
    one more after than before if that is odd. Exported detectors pad images to multiples of the backbone's largest
    stride, so that the outputs are equal. torch.export takes hours for a graph with the general formula.
    """
    if not any(_is_same(module) for module in model.modules()):
        return model
    model = copy.deepcopy(model)
    for conv in model.modules():
        if _is_same(conv):
            padding: list[int] = []
            for kernel, stride, dilation in zip(conv.kernel_size, conv.stride, conv.dilation, strict=True):
                total = max((kernel - 1) * dilation + 1 - stride, 0)
                padding = [total // 2, total - total // 2, *padding]  # F.pad takes the last dimension first
            conv.__class__, conv.constant_padding = _PaddedConv2d, padding
    return model


class _PaddedConv2d(nn.Conv2d):
    """A convolution after zeros that are added around its input."""

    constant_padding: Sequence[int]

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H', W')."""
        return super().forward(F.pad(x, self.constant_padding))


def _is_same(module: nn.Module) -> bool:
    return type(module).__name__ == 'Conv2dSame'  # timm's, which may not be installed
