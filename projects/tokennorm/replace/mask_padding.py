"""Keeps the padding of a batch out of the convolutions of a detector."""

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.utils import _pair

from tokennorm.padding import ImageArea

LARGEST_STRIDE = 32  # of backbones: sides of images are multiples of it
WINDOWED = (nn.Conv2d, nn.ConvTranspose2d, nn.MaxPool2d, nn.AvgPool2d)
HIDDEN = -1e4  # a logit whose sigmoid is 0, also in float16
BEYOND = 1e4  # a shift of an anchor after which it is clipped to a box without pixels, which mmdet's RPN leaves out


def mask_padding(model: nn.Module, divisor: int | None = None) -> nn.Module:
    """Makes the result for an image independent of the padding around it. It changes the model in place.

    Without it, convolutions read at the border of an image what earlier layers made of the padding, where an image
    alone has zeros. Nothing is computed for a batch without padding. The parameters and their names stay.

    - Convolutions and poolings whose windows overlap get zeros outside of the image. Those of a `roi_head` stay: their
      feature maps are boxes.
    - Scores of a dense head with sigmoids or softmax are 0 outside of the image, and so is the objectness of YOLOX. A
      `rpn_head` with anchors has no proposals there.
    - RoIAlign gets the last row and column of the image again after it, as at the border of a feature map.
    - `tokennorm.PVT`, `PVTv2` and `ViT` have no keys in the padding, and positions for the size of the image. The
      windows of `tokennorm.Swin` and `ViT` end with the image.

    Other attentions, and norms with statistics over positions, are not changed.

    Args:
        model: A detector of mmdet with `tokennorm.DetDataPreprocessor`, or a model that is called with a batch with
            `note_image_sizes`.
        divisor: Sides of an image are rounded up to its multiples. None is the `pad_size_divisor` of the data
            preprocessor, at most 32.

    Returns:
        The same model.

    Raises:
        ValueError: for a data preprocessor that does not note the sizes of images, and for a classifier.
    """
    preprocessor = getattr(model, 'data_preprocessor', None)
    if preprocessor is not None and not getattr(preprocessor, 'notes_image_sizes', False):
        raise ValueError(
            f'mask_padding: {type(preprocessor).__name__} does not note the sizes of images; use '
            "data_preprocessor=dict(type='tokennorm.DetDataPreprocessor')"
        )
    if divisor is None:
        divisor = min(getattr(preprocessor, 'pad_size_divisor', LARGEST_STRIDE), LARGEST_STRIDE)
    if any(getattr(module, 'out_type', 'featmap') == 'cls_token' for module in model.modules()):
        raise ValueError("mask_padding: out_type='cls_token' is a classifier; expected a detector, of feature maps")
    area = ImageArea(divisor)
    backbone = getattr(model, 'backbone', model)
    backbone.register_forward_pre_hook(area.start)
    hooks = _Hooks(area)
    roi_head = getattr(model, 'roi_head', None)
    after = set() if roi_head is None else set(roi_head.modules())
    for module in model.modules():
        if module in after:
            continue
        if isinstance(module, WINDOWED) and _overlaps(module):
            module.register_forward_pre_hook(hooks.before_windows)
        if getattr(module, 'use_sigmoid_cls', False):
            module.register_forward_hook(hooks.after_dense_head)
        elif hasattr(module, 'use_sigmoid_cls') and hasattr(module, 'cls_out_channels'):
            module.register_forward_hook(hooks.after_softmax_head)
        if hasattr(module, 'image_area'):
            module.image_area = area
    if hasattr(getattr(getattr(model, 'rpn_head', None), 'bbox_coder', None), 'means'):  # it shifts anchors
        model.rpn_head.register_forward_hook(hooks.after_rpn)
    if roi_head is not None:
        last = model.neck if getattr(model, 'with_neck', False) else backbone
        last.register_forward_hook(hooks.after_neck)
    return model


def _overlaps(module: Any) -> bool:
    return any(kernel > stride for kernel, stride in zip(_pair(module.kernel_size), _pair(module.stride), strict=True))


class _Hooks:
    """Forward hooks that use one `ImageArea`."""

    def __init__(self, area: ImageArea) -> None:
        self.area = area

    def before_windows(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.area.masked(args[0]), *args[1:]

    def after_dense_head(
        self, module: nn.Module, args: Any, outs: tuple[list[Tensor], ...]
    ) -> tuple[list[Tensor], ...]:
        hidden = [0, 2] if hasattr(module, 'loss_obj') else [0]
        return tuple(
            [self.area.masked(x, HIDDEN) for x in maps] if i in hidden else maps for i, maps in enumerate(outs)
        )

    def after_softmax_head(self, module: Any, args: Any, outs: tuple[list[Tensor], ...]) -> tuple[list[Tensor], ...]:
        logits = outs[0][0].new_full((module.cls_out_channels, 1, 1), HIDDEN)  # of each anchor
        logits[-1] = 0  # the background
        masked = [self.area.masked(x, logits.repeat(x.shape[1] // len(logits), 1, 1)) for x in outs[0]]
        return masked, *outs[1:]

    def after_rpn(self, module: nn.Module, args: Any, outs: tuple[list[Tensor], ...]) -> tuple[list[Tensor], ...]:
        return outs[0], [self.area.masked(x, BEYOND) for x in outs[1]], *outs[2:]

    def after_neck(self, module: nn.Module, args: Any, maps: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(self.area.replicated(x) for x in maps)
