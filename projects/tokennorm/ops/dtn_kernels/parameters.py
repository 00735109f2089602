"""The gradients of the parameters from the sums of all programs."""

import triton
import triton.language as tl


@triton.jit
def parameters_kernel(
    sums_ptr, sums_x_ptr,
    weight_ptr, bias_ptr, mean_logit_ptr, var_logit_ptr, position_ptr,
    C: tl.constexpr, N: tl.constexpr, HAS_MEAN: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Writes the gradients from the summed `partial`s, (G, 2 BLOCK_D + 4) and (G, 2). One program: one head."""
    D: tl.constexpr = C // N
    BLOCKS: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    head = tl.program_id(0)
    mean_logit = 0.0
    var_logit = 0.0
    a1 = 0.0
    a2 = 0.0
    a3 = 0.0
    for block in range(BLOCKS):
        chunk = head * BLOCKS + block
        sums = sums_ptr + chunk * (2 * BLOCK_D + 4)
        k = tl.arange(0, BLOCK_D)
        d = block * BLOCK_D + k
        weight = tl.load(sums + k)
        bias = tl.load(sums + BLOCK_D + k)
        tl.store(weight_ptr + head * D + d, weight.to(weight_ptr.dtype.element_ty), mask=d < D)
        tl.store(bias_ptr + head * D + d, bias.to(bias_ptr.dtype.element_ty), mask=d < D)
        sums += 2 * BLOCK_D
        mean_logit += tl.load(sums)
        var_logit += tl.load(sums + 1)
        a1 += tl.load(sums + 2) + tl.load(sums_x_ptr + 2 * chunk)
        a2 += tl.load(sums_x_ptr + 2 * chunk + 1)
        a3 += tl.load(sums + 3)
    if HAS_MEAN:
        tl.store(mean_logit_ptr + head, mean_logit.to(mean_logit_ptr.dtype.element_ty))
    tl.store(var_logit_ptr + head, var_logit.to(var_logit_ptr.dtype.element_ty))
    tl.store(position_ptr + 3 * head, a1.to(position_ptr.dtype.element_ty))
    tl.store(position_ptr + 3 * head + 1, a2.to(position_ptr.dtype.element_ty))
    tl.store(position_ptr + 3 * head + 2, a3.to(position_ptr.dtype.element_ty))
