"""A slow float64 transcription of the papers' equations, which everything is compared with.

The DTN paper's names: T tokens of an H x W grid in rows, C channels, R of Eq. 6, P of each head. All of it is dense:
P is a T x T matrix here.
"""

import math

import torch
from torch import Tensor


def relative_positions(height: int, width: int) -> Tensor:
    """R of Eq. 6 (T, T, 3): R_ij = [dx^2 + dy^2, dx, dy], the shifts from token i to token j (Fig. 6: j - i)."""
    token = torch.arange(height * width)
    x, y = token % width, token // width
    dx = (x[None, :] - x[:, None]).double()
    dy = (y[None, :] - y[:, None]).double()
    return torch.stack([dx**2 + dy**2, dx, dy], dim=-1)


def average_cells(x: Tensor, height: int, width: int, pool: int) -> Tensor:
    """Means of pool x pool tokens, partial at the right and bottom edges: (T, C) -> (cells, C)."""
    grid = x.view(height, width, -1)
    corners = [(y, x) for y in range(0, height, pool) for x in range(0, width, pool)]
    return torch.stack([grid[y : y + pool, x : x + pool].mean(dim=(0, 1)) for y, x in corners])


def repeat_cells(cells: Tensor, height: int, width: int, pool: int) -> Tensor:
    """Every token gets its cell's value: (cells, C) -> (T, C)."""
    cells_wide = -(-width // pool)
    index = [(y // pool) * cells_wide + x // pool for y in range(height) for x in range(width)]
    return cells[torch.tensor(index)]


def dense_dtn(
    x: Tensor,
    grid: tuple[int, int],
    weight: Tensor,
    bias: Tensor,
    mean_logit: Tensor | None,
    var_logit: Tensor,
    position: Tensor,
    eps: float = 1e-5,
    pool: int = 1,
    published: bool = False,
    positional_weights: Tensor | None = None,
) -> Tensor:
    """Algorithm 1 for tokens (B, T, C) in float64.

    `published` follows the authors' code where it differs. `positional_weights` (N, T, T) replaces P of Eq. 6.
    """
    num_heads = len(var_logit)
    head_dim = x.shape[-1] // num_heads
    height, width = grid
    cells = (-(-height // pool), -(-width // pool))
    out = []
    for tokens in x:  # line 7: for b = 1 to B
        if published:
            heads = tokens.view(len(tokens), num_heads, head_dim)
            tokens = (heads / torch.sqrt((heads**2).mean(-1, keepdim=True) + eps)).view_as(tokens)
        channels = x.shape[-1] - 1 if published else x.shape[-1]
        mean_ln = tokens.mean(-1, keepdim=True)  # Eq. 2
        var_ln = ((tokens - mean_ln) ** 2).sum(-1, keepdim=True) / channels
        means, variances = [], []
        for h in range(num_heads):
            x_h = tokens[:, h * head_dim : (h + 1) * head_dim]
            if positional_weights is None:
                p_h = (relative_positions(*cells) @ position[h]).softmax(dim=1)  # Eq. 6
            else:
                p_h = positional_weights[h]
            if pool > 1:
                x_h = average_cells(x_h, height, width, pool)
            mean_it = p_h @ x_h  # line 9
            var_it = p_h @ (x_h * x_h) - (p_h @ x_h) * (p_h @ x_h)
            if pool > 1:
                mean_it, var_it = (repeat_cells(s, height, width, pool) for s in (mean_it, var_it))
            mean_lambda = torch.ones(()) if mean_logit is None else torch.sigmoid(mean_logit[h])  # line 5
            var_lambda = torch.sigmoid(var_logit[h])
            mean_it = torch.zeros_like(mean_it) if mean_logit is None else mean_it
            means.append(mean_lambda * mean_ln + (1 - mean_lambda) * mean_it)  # line 10
            variances.append(var_lambda * var_ln + (1 - var_lambda) * var_it)  # line 11
        mean, var = torch.cat(means, dim=-1), torch.cat(variances, dim=-1)  # line 12
        out.append(weight * (tokens - mean) / torch.sqrt(var + eps) + bias)  # line 13
    return torch.stack(out)


def channels_first(norm, x: Tensor) -> Tensor:
    """A norm of maps (B, C, H, W) on a grid (B, H, W, C)."""
    return norm(x.movedim(-1, 1)).movedim(1, -1)


def switchable_norm(x: Tensor, weight: Tensor, bias: Tensor, mean_weight: Tensor, var_weight: Tensor, eps: float):
    """Switchable Normalization of (B, H, W, C) in training (Luo et al., 2019, Eqs. 2 to 5), Ω = (in, ln, bn)."""
    axes = [(1, 2), (1, 2, 3), (0, 1, 2)]
    means = [x.mean(axis, keepdim=True) for axis in axes]
    variances = [((x - mean) ** 2).mean(axis, keepdim=True) for mean, axis in zip(means, axes, strict=True)]
    mean_ratios, var_ratios = (logits.exp() / logits.exp().sum() for logits in (mean_weight, var_weight))
    mean = sum(ratio * value for ratio, value in zip(mean_ratios, means, strict=True))
    var = sum(ratio * value for ratio, value in zip(var_ratios, variances, strict=True))
    return weight * (x - mean) / (var + eps) ** 0.5 + bias


def power_norm_step(
    x: Tensor, grad_y: Tensor, state: dict, weight: Tensor, bias: Tensor, eps: float, warmup: int, groups: int = 1
):
    """One training step of PowerNorm (Shen et al., 2020, Algorithms 1 and 2, alpha = 0.9), on tokens (T, C).

    The warm-up and the division of tokens, or `groups` of their channels, by their root mean square are the authors'
    code's.

    Args:
        state: `phi` (psi squared) and `nu`, both (C,), and the number `t` of steps so far; changed.

    Returns:
        Output, and gradients of x, weight and bias.
    """

    def mean_of_groups(t: Tensor) -> Tensor:
        parts = t.chunk(groups, dim=1)
        return torch.cat([part.mean(1, keepdim=True).expand_as(part) for part in parts], dim=1)

    power = mean_of_groups(x**2) + eps
    scaled = x / power.sqrt()
    batch_phi = (scaled**2).mean(0)
    state['t'] += 1
    psi = ((batch_phi if state['t'] <= warmup else state['phi']) + eps).sqrt()
    if state['t'] < warmup:
        state['phi'] = ((state['t'] - 1) * state['phi'] + batch_phi) / state['t']
    state['phi'] = 0.9 * state['phi'] + 0.1 * batch_phi
    z = scaled / psi
    grad_z = weight * grad_y
    grad_scaled = (grad_z - state['nu'] * z) / psi
    gamma, mean_grad = (z * z).mean(0), (grad_z * z).mean(0)
    state['nu'] = (1 - 0.1 * gamma) * state['nu'] + 0.1 * mean_grad
    grad_x = grad_scaled / power.sqrt() - x * mean_of_groups(grad_scaled * x) / power**1.5
    return weight * z + bias, grad_x, (grad_y * z).sum(0), grad_y.sum(0)


def attention_written_out(attn, x, window):
    """Each window's tokens (B, H, W, C) on their own, padded with zeros, one head and one query at a time."""
    batch_size, height, width, dims = x.shape
    head_dims = dims // attn.num_heads
    padded = x.new_zeros(batch_size, math.ceil(height / window) * window, math.ceil(width / window) * window, dims)
    padded[:, :height, :width] = x
    out = torch.zeros_like(padded)
    for b in range(batch_size):
        for top in range(0, padded.shape[1], window):
            for left in range(0, padded.shape[2], window):
                tokens = padded[b, top : top + window, left : left + window].reshape(-1, dims)
                q, k, v = (tokens @ attn.qkv.weight.T + attn.qkv.bias).split(dims, dim=-1)
                heads = []
                for head in range(attn.num_heads):
                    part = slice(head * head_dims, (head + 1) * head_dims)
                    logits = torch.stack([(k[:, part] * query).sum(-1) for query in q[:, part]]) / head_dims**0.5
                    heads.append(logits.softmax(-1) @ v[:, part])
                mixed = torch.cat(heads, -1) @ attn.proj.weight.T + attn.proj.bias
                out[b, top : top + window, left : left + window] = mixed.view(window, window, dims)
    return out[:, :height, :width]


def resized(grid, shape):
    """Linear, (h, w, C) to (H, W, C) in float64: centers of cells on centers, outside the nearest cell's values."""
    matrices = []
    for size, new_size in zip(grid.shape[:2], shape, strict=True):
        matrix = torch.zeros(new_size, size, dtype=torch.float64)
        for i in range(new_size):
            center = (i + 0.5) * size / new_size - 0.5
            for j in (math.floor(center), math.floor(center) + 1):
                matrix[i, min(max(j, 0), size - 1)] += 1 - abs(center - j)
        matrices.append(matrix)
    return torch.einsum('yi,xj,ijc->yxc', *matrices, grid.double())
