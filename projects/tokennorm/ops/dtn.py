"""Dynamic Token Normalization as a function (Shao et al., "Dynamic Token Normalization Improves Vision Transformers").

Letters of the shapes: B batch, H x W grid, C channels, N heads, D = C / N channels per head.

The paper's positional weights (Eq. 6) are P_ij = softmax_j(a1 (dx^2 + dy^2) + a2 dx + a3 dy), with (dx, dy) = position
j minus position i. The exponent is a function of dx plus a function of dy, and over a full grid the softmax's
denominator factorizes as well, so that P is the Kronecker product of Py (H, H) and Px (W, W), exactly:

    P x = Py X Px^T        O(HW (H + W)) work, where the T x T matrix with T = HW takes O((HW)^2)

`dtn` is the function to call. It chooses between the reference implementation in torch operations (`dtn_eager`), the
same in C++ for CPUs (`dtn_cpu`) and in Triton for GPUs (`dtn_triton`).
"""

from typing import Literal

import torch
from torch import Tensor

from tokennorm.ops.dtn_cpu import CpuDTN
from tokennorm.ops.dtn_cpu import can_use as can_use_cpu
from tokennorm.ops.dtn_eager import eager_dtn, fits
from tokennorm.ops.dtn_triton_check import can_use as can_use_triton
from tokennorm.ops.tensors import is_plain


def dtn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean_logit: Tensor | None,
    var_logit: Tensor,
    position: Tensor,
    eps: float = 1e-5,
    pool: int = 1,
    form: Literal['paper', 'published'] = 'paper',
    valid: Tensor | None = None,
) -> Tensor:
    """Algorithm 1 of the paper. Statistics are float32 (float64 for float64 tokens), whatever the dtype and autocast.

    Args:
        x: Tokens (B, H, W, C).
        weight: gamma (C,).
        bias: beta (C,).
        mean_logit: Logits of each head's lambda for the mean (N,); None uses the intra-token mean only.
        var_logit: Logits of each head's lambda for the variance (N,).
        position: [a1, a2, a3] of each head in Eq. 6, (N, 3).
        eps: Added to the variance.
        pool: Side, in tokens, of the windows over which the inter-token statistics are pooled.
        form: 'paper' is Algorithm 1. 'published' follows the authors' code where it differs: every head of x is first
            divided by its root mean square, and the intra-token variance is unbiased.
        valid: Height and width, in tokens, of the rectangle at the top left of each image's grid that is image and not
            padding, int (B, 2), at least 1. The tokens inside are normalized as if the image were alone: P runs over
            them only. The tokens outside have no neighbors and are normalized by their own statistics, lambda = 1.
            None is the whole grid.

    Returns:
        Normalized tokens (B, H, W, C), in the dtype that `F.layer_norm` would return.

    Raises:
        ValueError: for a shape, a dtype or a device that does not fit the tokens; nothing broadcasts.
    """
    if pool < 1 or form not in ('paper', 'published'):
        raise ValueError(f"DTN: pool={pool!r} must be an integer of at least 1, form={form!r} 'paper' or 'published'")
    parameters = (weight, bias, mean_logit, var_logit, position)
    if form == 'paper' and torch.compiler.is_dynamo_compiling():
        from tokennorm.ops import dtn_compiled  # it imports torch's compiler

        if dtn_compiled.can_use(x, *parameters, valid) and fits(x, *parameters, valid):
            return dtn_compiled.dtn_forward(x, *parameters, eps, pool, valid)[0]
    if form == 'paper' and is_plain(x, *parameters, valid) and x.numel() > 0 and fits(x, *parameters, valid):
        pool = min(pool, max(x.shape[1:3]))
        if can_use_triton(x):
            from tokennorm.ops.dtn_triton import dtn_triton  # it imports Triton

            return dtn_triton(x, *parameters, eps, pool, valid)
        if can_use_cpu(x, position, pool):
            return CpuDTN.apply(x, *parameters, eps, pool, valid)
    return eager_dtn(x, *parameters, eps=eps, pool=pool, form=form, valid=valid)
