"""Keeps the padding of a batch out of the convolutions of a detector."""

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.utils import _pair

from tokennorm.images.padding import ImageArea

LARGEST_STRIDE = 32  # of backbones: sides of images are multiples of it
CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
POOLINGS = (nn.MaxPool2d, nn.AvgPool2d)
GLOBAL_POOLINGS = (nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d)
HIDDEN = -1e4  # a logit whose sigmoid is 0, also in float16
BEYOND = 1e4  # a shift of an anchor after which it is clipped to a box without pixels, which mmdet's RPN leaves out
WHOLE_IMAGES = ('semantic_head', 'glbctx_head')  # parts of a `roi_head` whose feature maps are of images, not of boxes
# mmdet's detectors in the table of docs/concepts/padding.md, which tests/replace/test_mask_padding_detectors.py checks.
# fmt: off
TESTED = {
    'ATSS', 'CascadeRCNN', 'CenterNet', 'CondInst', 'DETR', 'DINO', 'DeformableDETR', 'FCOS', 'FasterRCNN', 'GFL',
    'HybridTaskCascade', 'Mask2Former', 'MaskRCNN', 'RTMDet', 'RetinaNet', 'SCNet', 'SOLOv2', 'SingleStageDetector',
    'TOOD', 'YOLOX',
}
# fmt: on


def mask_padding(model: nn.Module, divisor: int | None = None) -> nn.Module:
    """Makes the result for an image independent of the padding around it. It changes the model in place.

    Without it, convolutions read at the border of an image what earlier layers made of the padding, where an image
    alone has zeros. Nothing is computed for a batch without padding. The parameters and their names stay.

    - Convolutions, also deformable ones, get zeros outside of the image; those with another `padding_mode` get its
      border. Max poolings get no value from there, average poolings divide by the number of positions inside. Layers
      of a `roi_head` stay, except in its semantic and global heads: their feature maps are boxes.
    - Scores of a dense head with sigmoids or softmax are 0 outside of the image, and so are the objectness of YOLOX and
      the heatmap of CenterNet. A `rpn_head` with anchors has no proposals there.
    - RoIAlign gets the last row and column of the image again after it, as at the border of a feature map.
    - `tokennorm.PVT`, `PVTv2` and `ViT` have no keys in the padding, and positions for the size of the image. The
      windows of `tokennorm.Swin` and `ViT` end with the image.

    Other attentions, norms with statistics over positions, adaptive poolings to more than one position, and what a
    model computes by functions in place of modules, are not changed. docs/concepts/padding.md has a table of what is
    exact in each of mmdet's detectors; one of mmdet's that is not in it gives a warning.

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
    _warn_if_untested(model)
    area = ImageArea(divisor)
    backbone = getattr(model, 'backbone', model)
    backbone.register_forward_pre_hook(area.start)
    hooks = _Hooks(area)
    roi_head = getattr(model, 'roi_head', None)
    of_images = [part for name in WHOLE_IMAGES if (part := getattr(roi_head, name, None)) is not None]
    of_boxes = set() if roi_head is None else set(roi_head.modules())
    of_boxes -= {module for part in of_images for module in part.modules()}
    for module in model.modules():
        if module in of_boxes:
            continue
        _mask_layer(module, hooks)
        if getattr(module, 'use_sigmoid_cls', False) or hasattr(module, 'loss_center_heatmap'):
            module.register_forward_hook(hooks.after_dense_head)
        elif hasattr(module, 'use_sigmoid_cls') and hasattr(module, 'cls_out_channels'):
            module.register_forward_hook(hooks.after_softmax_head)
        if hasattr(module, 'image_area'):
            module.image_area = area
    if hasattr(getattr(getattr(model, 'rpn_head', None), 'bbox_coder', None), 'means'):  # it shifts anchors
        model.rpn_head.register_forward_hook(hooks.after_rpn)
    if roi_head is not None:
        last = model.neck if getattr(model, 'with_neck', False) else backbone
        for part in (last, *of_images):
            part.register_forward_hook(hooks.before_roi_align)
    return model


def _warn_if_untested(model: nn.Module) -> None:
    """Warns of a detector of mmdet, or a class derived from it, that is not in the table."""
    names = [cls.__name__ for cls in type(model).__mro__ if cls.__module__.startswith('mmdet.models.detectors.')]
    if names and names[0] not in TESTED:
        warnings.warn(
            f'mask_padding: {names[0]} is not one of the tested detectors ({", ".join(sorted(TESTED))}): what it '
            'predicts may still change with the padding. docs/concepts/padding.md has what is exact in each; compare '
            'an image alone with the same image in a padded batch',
            stacklevel=3,
        )


def _mask_layer(module: Any, hooks: '_Hooks') -> None:
    """Registers what a layer needs whose windows reach over the border of an image."""
    if isinstance(module, CONVOLUTIONS) and _crosses_border(module):
        if module.padding_mode == 'zeros':
            module.register_forward_pre_hook(hooks.before_zeros)
        else:
            module.register_forward_hook(hooks.after_other_padding)
    elif hasattr(module, 'deform_groups'):  # mmcv's deformable convolutions, which are none of torch's
        module.register_forward_pre_hook(hooks.before_zeros)
    elif (isinstance(module, POOLINGS) and (_crosses_border(module) or module.ceil_mode)) or (
        isinstance(module, GLOBAL_POOLINGS) and _pair(module.output_size) == (1, 1)
    ):
        if isinstance(module, nn.MaxPool2d | nn.AdaptiveMaxPool2d):
            module.register_forward_pre_hook(hooks.before_max)
        else:
            module.register_forward_pre_hook(hooks.before_zeros)
            if _divides_by_inside(module):
                module.register_forward_hook(hooks.after_average)


def _crosses_border(module: Any) -> bool:
    """Returns whether windows may lie on both sides of the end of an image."""
    padding = 0 if isinstance(module.padding, str) else module.padding  # 'same' has no stride
    kernels, strides, dilations, paddings = map(
        _pair, (module.kernel_size, module.stride, getattr(module, 'dilation', 1), padding)
    )
    return any(
        dilation * (kernel - 1) >= stride or padding > 0
        for kernel, stride, dilation, padding in zip(kernels, strides, dilations, paddings, strict=True)
    )


def _divides_by_inside(module: Any) -> bool:
    """Returns whether the divisor of an average pooling depends on where the image ends."""
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return True
    return module.divisor_override is None and (module.ceil_mode or not module.count_include_pad)


class _Hooks:
    """Forward hooks that use one `ImageArea`."""

    def __init__(self, area: ImageArea) -> None:
        self.area = area

    def before_zeros(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.area.masked(args[0]), *args[1:]

    def before_max(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x = self.area.masked(args[0])
        if x is not args[0]:  # the least value of the channel: infinity would reach the norms and gradients after it
            x = self.area.masked(x, x.detach().amin(dim=(2, 3), keepdim=True))
        return x, *args[1:]

    def after_average(self, module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> Tensor:
        sides = args[0].shape[-2:]
        extents = self.area.extents(*sides)
        if extents is None:
            return out
        for axis in (0, 1):
            side, extent, length = sides[axis], extents[:, axis, None], out.shape[2 + axis]
            scale = _divisors(module, axis, side, length, extent.device) / _divisors(module, axis, extent, length)
            out = out * scale.to(out.dtype).reshape((-1, 1, length, 1) if axis == 0 else (-1, 1, 1, length))
        return out

    def after_other_padding(self, module: Any, args: tuple[Tensor, ...], out: Tensor) -> Tensor:
        x = args[0]
        extents = self.area.extents(*x.shape[-2:])
        if extents is None:
            return out
        left, right, top, bottom = module._reversed_padding_repeated_twice  # of torch 2.11, also for padding='same'
        for axis, before, after in ((2, top, bottom), (3, left, right)):
            extent = extents[:, axis - 2, None]
            places = torch.arange(-before, x.shape[axis] + after, device=x.device)
            shape, whole = (len(x), 1, -1, 1) if axis == 2 else (len(x), 1, 1, -1), [*x.shape]
            whole[axis] = len(places)
            x = x.gather(axis, _sources(places, extent, module.padding_mode).reshape(shape).expand(whole))
        return F.conv2d(x, module.weight, module.bias, module.stride, 0, module.dilation, module.groups)

    def after_dense_head(self, module: Any, args: Any, outs: tuple[list[Tensor], ...]) -> tuple[list[Tensor], ...]:
        hidden = [0, 2] if hasattr(module, 'loss_obj') else [0]
        # The heads of TOOD, whose loss says so, and CenterNet give probabilities.
        gives_logits = hasattr(module, 'use_sigmoid_cls') and not getattr(
            getattr(module, 'loss_cls', None), 'activated', False
        )
        value = HIDDEN if gives_logits else 0
        return tuple([self.area.masked(x, value) for x in maps] if i in hidden else maps for i, maps in enumerate(outs))

    def after_softmax_head(self, module: Any, args: Any, outs: tuple[list[Tensor], ...]) -> tuple[list[Tensor], ...]:
        logits = outs[0][0].new_full((module.cls_out_channels, 1, 1), HIDDEN)  # of each anchor
        logits[-1] = 0  # the background
        masked = [self.area.masked(x, logits.repeat(x.shape[1] // len(logits), 1, 1)) for x in outs[0]]
        return masked, *outs[1:]

    def after_rpn(self, module: nn.Module, args: Any, outs: tuple[list[Tensor], ...]) -> tuple[list[Tensor], ...]:
        return outs[0], [self.area.masked(x, BEYOND) for x in outs[1]], *outs[2:]

    def before_roi_align(self, module: nn.Module, args: Any, maps: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(self.area.replicated(x) if x.ndim == 4 else x for x in maps)


def _divisors(module: Any, axis: int, side: Any, length: int, device: Any = None) -> Tensor:
    """By how many positions an average pooling divides along one axis of a side, (length,), or of sides (B, 1)."""
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return torch.as_tensor(side, device=device)
    kernel, stride, padding = (_pair(value)[axis] for value in (module.kernel_size, module.stride, module.padding))
    side = torch.as_tensor(side, device=device)
    begins = torch.arange(length, device=side.device) * stride - padding
    ends = torch.minimum(begins + kernel, side + padding)
    if not module.count_include_pad:
        begins, ends = begins.clamp(min=0), torch.minimum(ends, side)
    return (ends - begins).clamp(min=1)


def _sources(places: Tensor, extent: Tensor, mode: str) -> Tensor:
    """Which positions of images (B, 1) a convolution pads with at places (N,), for a `padding_mode`: (B, N)."""
    last = extent - 1
    if mode == 'circular':
        return places % extent
    if mode == 'reflect':
        places = last - (last - places.abs()).abs()
    return torch.minimum(places, last).clamp(min=0)
