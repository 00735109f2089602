"""Dynamic Token Normalization as a function (Shao et al., "Dynamic Token Normalization Improves Vision Transformers").

Letters of the shapes: B batch, H x W grid, C channels, N heads, D = C / N channels per head.

The paper's positional weights (Eq. 6) are P_ij = softmax_j(a1 (dx^2 + dy^2) + a2 dx + a3 dy), with (dx, dy) = position
j minus position i. The exponent is a function of dx plus a function of dy, and over a full grid the softmax's
denominator factorizes as well, so that P is the Kronecker product of Py (H, H) and Px (W, W), exactly:

    P x = Py X Px^T        O(HW (H + W)) work, where the T x T matrix with T = HW takes O((HW)^2)

`dtn` is the function to call. It checks the arguments and chooses between the reference implementation in torch
operations (`dtn_eager`), the same in C++ for CPUs (`cpu`) and in place for GPUs (`dtn_in_place`), and operations for
exported files (`dtn_export`).
"""

from typing import Literal

import torch
from torch import Tensor

from tokennorm.ops.cpu import kernel
from tokennorm.ops.dtn_eager import eager_dtn
from tokennorm.ops.dtn_export import exported_dtn
from tokennorm.ops.dtn_in_place import in_place_dtn
from tokennorm.ops.moments import check_valid

gpu_dtn = in_place_dtn  # `experiments.gpu_kernels` replaces it
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


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
    parameters = (weight, bias, mean_logit, var_logit, position)
    if not isinstance(pool, int) or pool < 1 or form not in ('paper', 'published'):
        raise ValueError(f"DTN: pool={pool!r} must be an integer of at least 1, form={form!r} 'paper' or 'published'")
    check_valid('DTN', x, valid)
    if not _fit(x, parameters, valid):
        given = [(tuple(t.shape), t.dtype, str(t.device)) for t in (x, *parameters, valid) if t is not None]
        raise ValueError(
            'DTN takes x (B, H, W, C), weight and bias (C,), logits (N,) and position (N, 3), where N divides C: dense '
            f'tensors in float16, bfloat16, float32 or float64, all on the device of x, as `valid` is; got {given}'
        )
    if form == 'paper' and torch.compiler.is_dynamo_compiling():
        from tokennorm.ops.cpu import operator  # it imports torch's compiler

        if operator.is_exporting():
            return exported_dtn(x, *parameters, eps=eps, pool=pool, valid=valid)
        if operator.can_trace(x):
            return operator.dtn_forward(x, *parameters, eps, pool, valid)[0]
    elif form == 'paper' and torch.compiler.is_exporting():
        return exported_dtn(x, *parameters, eps=eps, pool=pool, valid=valid)
    elif form == 'paper' and kernel.has_memory(x, *parameters, valid):
        pool = max(1, min(pool, max(x.shape[1:3])))
        if kernel.takes(x, position, pool):
            return kernel.CpuDTN.apply(x, *parameters, eps, pool, valid)
        if x.is_cuda and x.dtype in kernel.DTYPES and x.numel():
            return gpu_dtn(x, *parameters, eps=eps, pool=pool, valid=valid)
    return eager_dtn(x, *parameters, eps=eps, pool=pool, form=form, valid=valid)


def _fit(x: Tensor, parameters: tuple[Tensor | None, ...], valid: Tensor | None) -> bool:
    """Returns whether the arguments of `dtn` have the documented shapes, dtypes and devices."""
    if x.is_nested or x.ndim != 4 or x.layout is not torch.strided:
        return False
    channels, heads = x.shape[-1:], parameters[-2].shape
    shapes = (channels, channels, heads, heads, (*heads, 3))
    return (
        len(heads) == 1
        and heads[0] > 0
        and channels[0] % heads[0] == 0
        and all(t is None or t.shape == shape for t, shape in zip(parameters, shapes, strict=True))
        and all(t is None or (t.dtype in DTYPES and t.device == x.device) for t in (x, *parameters))
        and (valid is None or valid.device == x.device)
    )
