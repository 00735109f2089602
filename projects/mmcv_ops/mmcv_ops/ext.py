"""All functions that `mmcv.ops` takes from its compiled module `_ext`, under mmcv's names and signatures.

A name that is not imported here is an operator that is not implemented: a function that raises.
"""

# ruff: noqa: F401  (what is imported is the content)

import inspect

import torch

from .attention import ms_deform_attn_backward, ms_deform_attn_forward
from .bezier_align import bezier_align_backward, bezier_align_forward
from .border_align import border_align_backward, border_align_forward
from .carafe import carafe_backward, carafe_forward, carafe_naive_backward, carafe_naive_forward
from .correlation import correlation_backward, correlation_forward
from .deform_conv import (
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    deform_conv_forward,
    modulated_deform_conv_backward,
    modulated_deform_conv_forward,
)
from .info import get_compiler_version, get_compiling_cuda_version
from .line_nms import line_nms_forward
from .losses import (
    sigmoid_focal_loss_backward,
    sigmoid_focal_loss_forward,
    softmax_focal_loss_backward,
    softmax_focal_loss_forward,
)
from .masked_conv import masked_col2im_forward, masked_im2col_forward
from .nms import nms, nms_match, softnms
from .overlaps import bbox_overlaps
from .point_sets import (
    chamfer_distance_backward,
    chamfer_distance_forward,
    convex_giou,
    convex_iou,
    diff_iou_rotated_sort_vertices_forward,
    min_area_polygons,
)
from .prroi_pool import prroi_pool_backward, prroi_pool_coor_backward, prroi_pool_forward
from .psa_mask import psamask_backward, psamask_forward
from .quadrilaterals import box_iou_quadri, nms_quadri, points_in_polygons_forward
from .roi import (
    deform_roi_pool_backward,
    deform_roi_pool_forward,
    roi_align_backward,
    roi_align_forward,
    roi_pool_backward,
    roi_pool_forward,
)
from .rotated import box_iou_rotated, nms_rotated
from .rotated_features import (
    active_rotated_filter_backward,
    active_rotated_filter_forward,
    rotated_feature_align_backward,
    rotated_feature_align_forward,
)
from .rotated_roi import (
    riroi_align_rotated_backward,
    riroi_align_rotated_forward,
    roi_align_rotated_backward,
    roi_align_rotated_forward,
)
from .sync_bn import (
    sync_bn_backward_data,
    sync_bn_backward_param,
    sync_bn_forward_mean,
    sync_bn_forward_output,
    sync_bn_forward_var,
)
from .text import contour_expand, pixel_group
from .tin_shift import tin_shift_backward, tin_shift_forward

MMCV_OPS = True  # a compiled module does not have it

__all__ = ['MMCV_OPS', *(name for name, value in globals().items() if inspect.isfunction(value))]

# torch.compile drops the writing into mmcv's `grad_input` from a backward pass that it traces: all gradients would be
# 0. It must leave functions that need gradients to eager mode, as it does with compiled operators.
for _name in __all__:
    if 'backward' in _name:
        globals()[_name] = torch.compiler.disable(globals()[_name])


def __getattr__(name: str):
    if name.startswith('__'):
        raise AttributeError(name)

    def not_implemented(*args, **kwargs):
        raise NotImplementedError(
            f'{name}: this operator of mmcv is not in mmcv_ops. Either install an mmcv with compiled operators, '
            'or choose a model that does not use it.'
        )

    not_implemented.__name__ = name
    return not_implemented
