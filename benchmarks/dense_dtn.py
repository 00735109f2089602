"""DTN with the paper's T x T matrix, written lean: P built once a forward, one batched product a statistic."""

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from torch import Tensor

from tokennorm.norms import DTN


def dense_dtn(x: Tensor, norm: DTN) -> Tensor:
    """Algorithm 1 for tokens (B, H, W, C) with the parameters of `norm`, whose pool divides H and W.

    Statistics are in the dtype of the tokens: it is the form to be faster than, not the one to be as exact as.
    """
    batch, _, width, channels = x.shape
    pool, num_heads = norm.pool, norm.num_heads
    grid = x
    if pool > 1:
        grid = rearrange(F.avg_pool2d(rearrange(x, 'b h w c -> b c h w'), pool), 'b c h w -> b h w c')
    p = positional_matrix(norm.position, *grid.shape[1:3]).to(x.dtype)
    heads = rearrange(grid, 'b h w (n d) -> n (h w) (b d)', n=num_heads)
    inter_mean = torch.bmm(p, heads)
    inter_var = torch.bmm(p, heads * heads) - inter_mean * inter_mean
    inter_mean, inter_var = (
        repeat(s, 'n (h w) (b d) -> b (h ph) (w pw) (n d)', b=batch, w=width // pool, ph=pool, pw=pool)
        for s in (inter_mean, inter_var.clamp(min=0))
    )
    mean = x.mean(dim=-1, keepdim=True)
    var = (x - mean).square().mean(dim=-1, keepdim=True)
    head_dim = channels // num_heads
    mean_lambda, var_lambda = (
        logit.sigmoid().repeat_interleave(head_dim).to(x.dtype) for logit in (norm.mean_logit, norm.var_logit)
    )
    mean = torch.lerp(inter_mean, mean, mean_lambda)
    var = torch.lerp(inter_var, var, var_lambda)
    return (x - mean) * (var + norm.eps).rsqrt() * norm.weight + norm.bias


def positional_matrix(position: Tensor, height: int, width: int) -> Tensor:
    """P of Eq. 6 for each head, (N, 3) -> (N, T, T)."""
    token = torch.arange(height * width, device=position.device)
    x, y = (token % width).to(position.dtype), (token // width).to(position.dtype)
    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
    a1, a2, a3 = position[:, :, None, None].unbind(dim=1)
    return (a1 * (dx * dx + dy * dy) + a2 * dx + a3 * dy).softmax(dim=-1)


def bytes_needed(batch: int, height: int, width: int, channels: int, num_heads: int, pool: int) -> int:
    """Bytes of P, its exponents and their gradients in float32, which exceed all others for large T."""
    tokens = (height // pool) * (width // pool)
    return 4 * 4 * num_heads * tokens**2 + 20 * 4 * batch * height * width * channels
