"""Multi-scale deformable attention (Zhu et al. 2021) on an accelerator. On a CPU mmcv uses its own PyTorch form.

The same PyTorch form runs here, in float32 for half precision, and autograd differentiates it.
"""

import torch
from torch import Tensor

from .precision import float32


def _attend(value: Tensor, shapes: Tensor, locations: Tensor, weights: Tensor) -> Tensor:
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch

    return multi_scale_deformable_attn_pytorch(value, shapes, locations, weights)


def ms_deform_attn_forward(
    value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor, im2col_step: int
) -> Tensor:
    """Returns (N, queries, heads x channels) from value (N, keys, heads, channels)."""
    values, locations, weights = float32(value, locations, weights)
    return _attend(values, shapes, locations, weights).to(value)


def ms_deform_attn_backward(
    value, shapes, starts, locations, weights, grad_output, grad_value, grad_locations, grad_weights, im2col_step
) -> None:
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in float32(value, locations, weights)]
        out = _attend(leaves[0], shapes, *leaves[1:])
        grads = torch.autograd.grad(out, leaves, *float32(grad_output))
    for target, grad in zip((grad_value, grad_locations, grad_weights), grads, strict=True):
        target.copy_(grad)
