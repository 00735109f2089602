"""Metrics of tokens: magnitudes (DTN paper, Fig. 1), distance of a normalizer's mean (Fig. 3b), components (Fig. 9);
rows of P (Figs. 7 and 8); scales of Dual PatchNorm (Kumar et al., 2023).

Shapes: H x W grid, C channels, N heads, D = C / N channels per head, T tokens.
"""

import torch
from einops import rearrange
from torch import Tensor, nn

from tokennorm.base.messages import UserError
from tokennorm.layers import DualPatchEmbed
from tokennorm.norms import DTN, BatchNorm, InstanceNorm, LayerNorm
from tokennorm.ops.dtn_eager import axis_weights, inter_token_stats, intra_token_stats

GRID, TOKEN = (14, 14), (6, 7)  # of the rows of P in the paper: token 91 of 14 x 14


def token_magnitudes(tokens: Tensor, num_heads: int) -> Tensor:
    """Returns the Euclidean norm of each head's channels of each token, (H, W, C) -> (N, H, W)."""
    return rearrange(tokens, 'h w (n d) -> n h w d', n=num_heads).norm(dim=-1)


def relative_spread(values: Tensor) -> Tensor:
    """Returns standard deviation / mean of each feature map, (N, H, W) -> (N,): 0 if all tokens are equal."""
    return values.flatten(1).std(dim=1, correction=0) / values.flatten(1).mean(dim=1)


def variation_coefficient(tokens: Tensor, mean: Tensor) -> Tensor:
    """Returns the coefficient of Fig. 3b for each token (..., C): the norm of |(x - mu) / x| over its channels.

    Channels that are zero are left out. Channels near zero dominate the norm: compare medians.
    """
    return ((tokens - mean) / tokens).where(tokens != 0, 0).norm(dim=-1)


def relative_distance(tokens: Tensor, mean: Tensor) -> Tensor:
    """Returns |x - mu| / |x| for each token, (..., C) -> (...)."""
    return (tokens - mean).norm(dim=-1) / tokens.norm(dim=-1)


def mean_of(norm: nn.Module, tokens: Tensor) -> Tensor:
    """Returns mu, the mean that LN, IN, BN or DTN subtracts in eval mode from the tokens of one image, (H, W, C).

    The published form of DTN first divides each head of a token by its root mean square. Its mean is returned
    multiplied by that, so that (x - mu) / x does not change.
    """
    if isinstance(norm, LayerNorm):
        return tokens.mean(dim=-1, keepdim=True)
    if isinstance(norm, InstanceNorm):
        return tokens.mean(dim=(0, 1))
    if isinstance(norm, BatchNorm):
        return norm.bn.running_mean.to(tokens)
    if not isinstance(norm, DTN) or type(norm).forward is not DTN.forward:  # the ablation BandedDTN has another P
        raise UserError(f'the mean of {type(norm).__name__} is not known; LN, IN, BN and DTN are supported')
    heads = tokens.unflatten(-1, (norm.num_heads, -1))
    scale = (heads.square().mean(dim=-1) + norm.eps).sqrt() if norm.form == 'published' else torch.ones(norm.num_heads)
    scale = scale.to(tokens).repeat_interleave(heads.shape[-1], dim=-1)
    x = (tokens / scale)[None]
    mean, _ = intra_token_stats(x)
    if norm.mean_logit is not None:
        inter_mean, _ = inter_token_stats(x, norm.position.to(x), norm.pool)
        ratio = norm.mean_logit.to(x).sigmoid().repeat_interleave(heads.shape[-1])
        mean = torch.lerp(inter_mean, mean, ratio)  # mu of Eq. 5
    return mean[0] * scale


def principal_components(tokens: Tensor, count: int = 2) -> tuple[Tensor, Tensor]:
    """Returns the coordinates (T, count) of tokens (T, C) in the directions along which they vary most.

    The second result is the fraction of the variance of each. The largest entry of each direction is positive.
    """
    centered = tokens - tokens.mean(dim=0)
    _, sizes, directions = torch.linalg.svd(centered, full_matrices=False)
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    directions = directions * largest.sign()
    return centered @ directions[:count].T, (sizes.square() / sizes.square().sum())[:count]


def mean_cosine(tokens: Tensor) -> float:
    """Returns the mean cosine of the angle between two different tokens of (T, C): 1 if all directions are equal."""
    directions = tokens / tokens.norm(dim=-1, keepdim=True)
    count = len(tokens)
    return ((directions.sum(dim=0).square().sum() - count) / (count * (count - 1))).item()


def row_of_p(position: Tensor, grid: tuple[int, int] = GRID, token: tuple[int, int] = TOKEN) -> Tensor:
    """Returns the weights (N, H, W) that one token, (row, column), gives to all tokens of a grid, in float64.

    `position` is [a1, a2, a3] of each head, (N, 3). With pooling the grid is in pooled tokens.
    """
    a1, a2, a3 = position.detach().double().unbind(dim=1)
    p_y, p_x = axis_weights(a1, a3, grid[0])[:, token[0]], axis_weights(a1, a2, grid[1])[:, token[1]]
    return p_y[:, :, None] * p_x[:, None]


def patch_scales(backbone: nn.Module) -> Tensor:
    """Returns the scales (gamma) of the norm before the projection of a `DualPatchEmbed`, (ph, pw, C)."""
    for module in backbone.modules():
        if isinstance(module, DualPatchEmbed) and getattr(module.patch_norm, 'weight', None) is not None:
            return module.patch_norm.weight.detach().unflatten(0, (*module.window, -1))
    raise UserError('no DualPatchEmbed with a norm before its projection: set stem_cfg')
