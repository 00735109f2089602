"""Dynamic Token Normalization (Shao et al., 2021, Algorithm 1) as a module."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from tokennorm.ops.dtn import dtn

# lambda = 0.9997. benchmarks/layer_norm_start.py: at a random start PVT, PVTv2 and Swin keep their maps to 4e-4 of the
# largest entry; with 7 to 9e-4, which leaves nothing for weights that are trained, and with 6 not to 1e-3.
LAYER_NORM_LOGIT = 8.0


def attention_centres(num_heads: int) -> Tensor:
    """Eq. 7: the offset Delta = (x, y) that each head's weights P start centred on, in tokens.

    With s = floor(sqrt(num_heads)), head iy + s * ix looks at (ix, iy) - (s - 1) / 2: the s x s neighbourhood around
    the token, between tokens where s is even. Heads beyond s * s look at the token itself.

    Returns:
        Offsets (num_heads, 2).
    """
    side = math.isqrt(num_heads)
    centres = torch.zeros(num_heads, 2)
    steps = torch.arange(side) - (side - 1) / 2
    centres[: side * side] = torch.cartesian_prod(steps, steps).view(-1, 2)
    return centres


class DTN(nn.LayerNorm):
    """Normalizes tokens by statistics within each token and across its neighbours, mixed by a learned ratio a head.

    A drop-in for LayerNorm in vision transformer blocks. It takes a grid (B, H, W, C) and returns the same shape. A
    tensor of rank 3 raises unless `grid` says what it means: read as one row of tokens it would silently get
    one-dimensional statistics.

    The statistics are those of one image, in training and in evaluation alike: processes that train together have
    nothing to synchronise here, and there is no SyncDTN as there is a SyncBatchNorm.

    Args:
        num_features: Channels C.
        num_heads: Heads N of the attention behind this norm; divides C. Each has its own P and its own ratios.
        eps: Added to the variance.
        pool: Side, in tokens, of the cells that the inter-token statistics are averaged over (paper, B.1).
        form: 'paper' is Algorithm 1. 'published' is the arithmetic of the authors' code, for their checkpoints: each
            head of x is first divided by its root mean square, and the intra-token variance is unbiased.
        only_var: Take the intra-token mean alone; there is then no `mean_logit`.
        start: 'paper' starts with lambda = 0.5. 'layer_norm' starts with lambda so close to 1 that a network trained
            with LayerNorm goes on where it was; with the same `eps` its maps stay within 1e-3. lambda then moves
            slowly: give its logits a higher learning rate.
        grid: What a rank-3 input is: (H, W) for (B, H * W, C), 'sequence' for (B, T, C), a grid of 1 x T.

    Attributes:
        weight, bias: gamma and beta (C,).
        mean_logit, var_logit: Logits of lambda for mean and variance, (N,); zero at the paper's start, lambda = 0.5.
        position: [a1, a2, a3] of Eq. 6, the factors of dx^2 + dy^2, dx and dy, (N, 3); Eq. 7 at the start.

    Raises:
        ValueError: for arguments out of range, and for an input whose shape does not fit.
    """

    def __init__(
        self,
        num_features: int,
        num_heads: int,
        eps: float = 1e-5,
        pool: int = 1,
        form: Literal['paper', 'published'] = 'paper',
        only_var: bool = False,
        start: Literal['paper', 'layer_norm'] = 'paper',
        grid: tuple[int, int] | Literal['sequence'] | None = None,
    ) -> None:
        if not isinstance(num_heads, int) or num_heads < 1 or num_features % num_heads:
            raise ValueError(f'DTN: num_heads={num_heads!r} must divide num_features={num_features}')
        if not isinstance(pool, int) or pool < 1:
            raise ValueError(f'DTN: pool={pool!r} must be a whole number of tokens, at least 1')
        if form not in ('paper', 'published'):
            raise ValueError(f"DTN: form={form!r} must be 'paper' or 'published'")
        if start not in ('paper', 'layer_norm'):
            raise ValueError(f"DTN: start={start!r} must be 'paper' or 'layer_norm'")
        if start == 'layer_norm' and form != 'paper':
            raise ValueError(
                "DTN: start='layer_norm' needs form='paper': the published form divides tokens by their RMS"
            )
        if form == 'published' and num_features == 1:
            raise ValueError('DTN: the unbiased variance of the published form needs num_features of at least 2')
        if grid not in (None, 'sequence') and (isinstance(grid, str | int) or len(grid) != 2):
            raise ValueError(f"DTN: grid={grid!r} must be (height, width), 'sequence' or None")
        super().__init__(num_features, eps=eps)
        self.num_heads = num_heads
        self.pool = pool
        self.form = form
        self.start = start
        self.grid = grid
        self.register_parameter('mean_logit', None if only_var else nn.Parameter(torch.empty(num_heads)))
        self.var_logit = nn.Parameter(torch.empty(num_heads))
        self.position = nn.Parameter(torch.empty(num_heads, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """LayerNorm's gamma and beta, lambda as `start` says, and Eq. 7 for the positions.

        Heads beyond a square number, of which the paper says nothing, start at [-1, 0, 0]; in the published form at a
        truncated normal with standard deviation 0.02, as in the authors' code. (A random a1 > 0 would fix the head on a
        far corner of a detector's grid.)
        """
        super().reset_parameters()
        if not hasattr(self, 'position'):
            return  # called by nn.LayerNorm's constructor, before the other parameters exist
        for logit in (self.mean_logit, self.var_logit):
            if logit is not None:
                nn.init.constant_(logit, LAYER_NORM_LOGIT if self.start == 'layer_norm' else 0.0)
        with torch.no_grad():
            self.position[:, 0] = -1
            self.position[:, 1:] = 2 * attention_centres(self.num_heads)
            if self.form == 'published':
                nn.init.trunc_normal_(self.position[math.isqrt(self.num_heads) ** 2 :], std=0.02)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C), or rank 3 as `grid` says.

        `valid`, an int tensor (B, 2), is the height and width, in tokens, of the rectangle at the top left of each
        image's grid that is image and not padding: the tokens inside are normalized as if the image were alone, those
        outside by their own statistics. The published form has no such thing and ignores it.
        """
        if valid is not None and (valid.shape != (x.shape[0], 2) or valid.is_floating_point()):
            raise ValueError(
                f'DTN: valid of shape {tuple(valid.shape)} and {valid.dtype} must be whole numbers (B, 2), a height '
                f'and a width in tokens for each of the {x.shape[0]} images'
            )
        out = dtn(
            self._as_grid(x),
            self.weight,
            self.bias,
            self.mean_logit,
            self.var_logit,
            self.position,
            eps=self.eps,
            pool=self.pool,
            published=self.form == 'published',
            valid=valid if self.form == 'paper' else None,
        )
        return out.view(x.shape)

    def _as_grid(self, x: Tensor) -> Tensor:
        """The tokens as (B, H, W, C)."""
        if x.shape[-1] != self.normalized_shape[0]:
            raise ValueError(f'DTN of {self.normalized_shape[0]} channels got a tensor of shape {tuple(x.shape)}')
        if x.ndim == 4:
            return x
        if x.ndim == 3 and self.grid == 'sequence':
            return x[:, None]
        if x.ndim == 3 and self.grid is not None and x.shape[1] == self.grid[0] * self.grid[1]:
            return x.unflatten(1, self.grid)
        raise ValueError(
            f'DTN takes (B, H, W, C), got {tuple(x.shape)} with grid={self.grid!r}. '
            "For (B, H * W, C) construct it with grid=(H, W), for a token sequence with grid='sequence'."
        )

    def extra_repr(self) -> str:
        only_var = ', only_var=True' if self.mean_logit is None else ''
        start = f', start={self.start!r}' if self.start != 'paper' else ''
        grid = f', grid={self.grid!r}' if self.grid is not None else ''
        return (
            f'{self.normalized_shape[0]}, num_heads={self.num_heads}, eps={self.eps}, pool={self.pool}, '
            f'form={self.form!r}{only_var}{start}{grid}'
        )
