"""A whole detector as one module: pixels in, detections out."""

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmdet.models.dense_heads import RTMDetInsHead
from mmdet.models.detectors import DetectionTransformer, SingleStageDetector, TwoStageDetector
from mmdet.models.detectors.base import BaseDetector
from torch import Tensor, nn

from tokennorm.export.dense import UnsupportedError, check_dense_head, decode_dense
from tokennorm.export.mmdet_predict import predict_one, with_fixed_shapes
from tokennorm.export.two_stage import check_roi_head, detect_boxes, detect_masks
from tokennorm.inference.runtime import SMALLEST_SIDE
from tokennorm.layers.pad import round_up
from tokennorm.models.data_preprocessors import DetDataPreprocessor

Canvas = tuple[int, int, Sequence[float]]
SIDE_MULTIPLE = 32  # the largest stride of a backbone


class WholeDetector(nn.Module):
    """Normalization of pixels, padding, backbone, neck, heads and non-maximum suppression of an mmdet detector.

    Args:
        detector: A one-stage or two-stage detector, or one with a transformer; others raise `UnsupportedError`. Heads
            that decode as mmdet's standard ones do so for a batch, others with `mmdet_predict` for one image.
        half: Compute backbone, neck and heads of a copy of it in float16. Pixels, boxes, non-maximum suppression,
            RoIAlign and the inputs and outputs stay float32, and so do DTN's statistics.
        alone: It gets batches of one image that fills them up to a multiple of `multiple`, so that no layer has to
            mask padding, unless `mask_padding` rounds sides up to less.
        canvas: Height, width and value per channel of the canvas that the test pipeline puts images on, if any.

    Attributes:
        color: Order of the channels that `forward` takes, 'RGB' or 'BGR'.
        by_mmdet: Whether mmdet's own prediction is inside, for one image.
        alone: As above, and True with `by_mmdet`.
        smallest_side: Fewest pixels along a side of a batch in a .pt2 file.
        least_side: As that, in other files.
    """

    def __init__(
        self, detector: BaseDetector, half: bool = False, alone: bool = False, canvas: Canvas | None = None
    ) -> None:
        super().__init__()
        self.by_mmdet = not decodes_batches(detector)
        if self.by_mmdet:
            if half:
                raise UnsupportedError(f'--fp16: {type(detector).__name__} can be exported in float32 only')
            detector = with_fixed_shapes(detector)
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
        self.alone = alone or self.by_mmdet
        self.canvas = None if canvas is None else canvas[:2]
        if canvas is not None:
            self.register_buffer('canvas_value', torch.tensor(canvas[2]).float().reshape(-1, 1, 1))
        self.fill = float(preprocessor.pad_value)
        self.multiple = preprocessor.pad_size_divisor
        if self.multiple % SIDE_MULTIPLE and detector is not original:
            raise UnsupportedError(f'pad_size_divisor={self.multiple}: Conv2dSame needs a multiple of {SIDE_MULTIPLE}')
        self.two_stages = isinstance(detector, TwoStageDetector)
        head = detector.rpn_head if self.two_stages else detector.bbox_head
        # Small images that are not padded to multiples may take another way through a backbone.
        any_side = canvas or not self.by_mmdet or self.multiple % SIDE_MULTIPLE == 0
        self.least_side = 1 if any_side else SMALLEST_SIDE
        strides = [] if self.by_mmdet or canvas else head.prior_generator.strides
        self.smallest_side = max([SMALLEST_SIDE, *(max(s) + 1 for s in strides)])  # several tokens at every level
        whole_masks = isinstance(head, RTMDetInsHead)
        self.mask_stride = head.prior_generator.strides[0][0] if whole_masks else None
        self.with_masks = whole_masks or (self.two_stages and detector.roi_head.with_mask)
        self.outputs = ('boxes', 'scores', 'labels') + ('mask_logits' if whole_masks else 'masks',) * self.with_masks

    def forward(self, images: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
        """Detects objects in pixels of 0 to 255, float (B, 3, H, W), with channels in the order `color`.

        `sizes` are the height and width of each image without its padding, int (B, 2); 0 is the whole side. Returns the
        result of `kept_and_ranked`, and with masks the probability of the object within each box, (B, N, h, w).
        """
        sides = zip(sizes.unbind(1), images.shape[2:], strict=True)
        sizes = torch.stack([torch.where(given > 0, given, side).clamp(max=side) for given, side in sides], dim=1)
        if self.canvas is not None:
            images, sizes = self._on_canvas(images, sizes)
        x = self._prepare(images, sizes).to(self.dtype)
        if self.notes_sizes:
            x.image_sizes = sizes
            sizes.cut_to = self.multiple if self.alone else None
        if self.by_mmdet:
            return predict_one(self.detector, x, sizes, images.shape[2:])
        maps = self.detector.extract_feat(x)
        if not self.two_stages:
            return decode_dense(self.detector.bbox_head, maps, sizes)
        proposals = decode_dense(self.detector.rpn_head, maps, sizes)
        found = detect_boxes(self.detector.roi_head, maps, proposals, sizes)
        if not self.with_masks:
            return found
        boxes, scores, labels = found
        return boxes, scores, labels, detect_masks(self.detector.roi_head, maps, boxes, labels)

    def _on_canvas(self, images: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Images with the padding of the test pipeline, which counts as image, and their new sizes."""
        x = images - self.canvas_value
        x = x if self.alone else torch.where(_inside(images, sizes), x, 0)
        (height, width), (rows, columns) = self.canvas, images.shape[-2:]
        x = F.pad(x, (0, width - columns, 0, height - rows)) + self.canvas_value
        x = x.reshape(*x.shape[:2], height, width)  # numbers for torch.export
        return x, torch.tensor([[height, width]], device=sizes.device).expand(sizes.shape[0], 2)

    def _prepare(self, images: Tensor, sizes: Tensor) -> Tensor:
        """Normalized pixels, with padding to multiples of `multiple`, as mmdet's data preprocessor makes them."""
        height, width = images.shape[-2:]
        x = (images - self.pixel_mean) / self.pixel_std
        if not self.alone and self.canvas is None:  # images fill up what they get
            x = torch.where(_inside(images, sizes), x, self.fill)
        bottom, right = (round_up(side, self.multiple) - side for side in (height, width))
        return F.pad(x, (0, right, 0, bottom), value=self.fill)


def decodes_batches(detector: BaseDetector) -> bool:
    """Returns whether the heads of a detector are those for which this package decodes a batch.

    Raises:
        UnsupportedError: for a detector that cannot be exported at all.
    """
    if isinstance(detector, TwoStageDetector) and detector.with_rpn:
        check_dense_head(detector.rpn_head)
        check, head = check_roi_head, detector.roi_head
    elif isinstance(detector, SingleStageDetector | DetectionTransformer) and hasattr(detector, 'bbox_head'):
        check, head = check_dense_head, detector.bbox_head
    else:
        raise UnsupportedError(
            f'{type(detector).__name__} cannot be exported; supported are one-stage detectors, detectors with a region '
            'proposal network, and DETR and its successors'
        )
    try:
        check(head)
    except UnsupportedError:
        return False
    return True


def _inside(images: Tensor, sizes: Tensor) -> Tensor:
    """Which pixels are those of the images, bool (B, 1, H, W)."""
    rows, columns = (torch.arange(side, device=images.device) for side in images.shape[-2:])
    return ((rows < sizes[:, :1])[:, :, None] & (columns < sizes[:, 1:])[:, None])[:, None]


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
