"""All functions that `mmcv.ops` takes from its compiled module `_ext`, under mmcv's names and signatures.

A name that is not imported here is an operator that is not implemented: a function that raises.
"""

from .attention import ms_deform_attn_backward, ms_deform_attn_forward
from .deform_conv import (
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    deform_conv_forward,
    modulated_deform_conv_backward,
    modulated_deform_conv_forward,
)
from .info import get_compiler_version, get_compiling_cuda_version
from .losses import sigmoid_focal_loss_backward, sigmoid_focal_loss_forward
from .nms import nms, softnms
from .roi import roi_align_backward, roi_align_forward, roi_pool_backward, roi_pool_forward

MMCV_OPS = True  # a compiled module does not have it

__all__ = [
    'MMCV_OPS',
    'deform_conv_backward_input',
    'deform_conv_backward_parameters',
    'deform_conv_forward',
    'get_compiler_version',
    'get_compiling_cuda_version',
    'modulated_deform_conv_backward',
    'modulated_deform_conv_forward',
    'ms_deform_attn_backward',
    'ms_deform_attn_forward',
    'nms',
    'roi_align_backward',
    'roi_align_forward',
    'roi_pool_backward',
    'roi_pool_forward',
    'sigmoid_focal_loss_backward',
    'sigmoid_focal_loss_forward',
    'softnms',
]


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
