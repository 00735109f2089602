"""Attention with an additive bias."""

import torch
import torch.nn.functional as F
from torch import Tensor


def attend_with_bias(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention in the windows of a batch of images, with an additive bias.

    torch's own attention has no fast kernel on a CPU for a bias that needs a gradient, so that case is written out.

    Args:
        q: Queries (B * M, N, T, D): M windows per image, N heads of D channels, T tokens per window.
        k: Keys, of the same shape.
        v: Values, of the same shape.
        bias: Bias of each window and head, (M, N, T, T), or (1, N, T, T) if all windows share it.

    Returns:
        (B * M, N, T, D).
    """
    if q.device.type == 'cpu' and bias.requires_grad:
        logits = (q * q.shape[-1] ** -0.5) @ k.mT
        logits = (logits.unflatten(0, (-1, len(bias))) + bias).flatten(0, 1)
        return logits.softmax(dim=-1).to(v.dtype) @ v
    if bias.shape[0] != 1:  # len() would fix the sides of an exported graph
        bias = bias.repeat(q.shape[0] // bias.shape[0], 1, 1, 1)
    x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
    # An exporter writes the attention out. Its result then has other strides, and a view of it would be refused.
    return x.contiguous() if torch.compiler.is_exporting() else x
