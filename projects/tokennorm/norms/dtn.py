"""Dynamic Token Normalization (Shao et al., 2021, Algorithm 1) as a module."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from tokennorm.ops.dtn import dtn

# lambda = 0.9997. benchmarks/layer_norm_start.py: with this logit, PVT, PVTv2 and Swin of random weights keep their
# feature maps to 4e-4 of the largest entry. With 7 it is 9e-4, which leaves no margin for trained weights.
LAYER_NORM_LOGIT = 8.0


def attention_centers(num_heads: int) -> Tensor:
    """Eq. 7: the offsets Delta = (x, y), (num_heads, 2), in tokens, on which P of each head is initially centered.

    With s = floor(sqrt(num_heads)), head iy + s * ix is centered on (ix, iy) - (s - 1) / 2. Together they cover the
    s x s neighborhood of the token; for even s the centers lie between tokens. Heads beyond s * s are centered on the
    token itself.
    """
    side = math.isqrt(num_heads)
    centers = torch.zeros(num_heads, 2)
    steps = torch.arange(side) - (side - 1) / 2
    centers[: side * side] = torch.cartesian_prod(steps, steps).view(-1, 2)
    return centers


class DTN(nn.LayerNorm):
    """Normalizes tokens by statistics within each token and across its neighbors, mixed by lambda, learned per head.

    DTN replaces LayerNorm in the blocks of vision transformers. It takes a grid (B, H, W, C) and returns the same
    shape. A tensor of rank 3 raises unless `grid` says how to read it: as one row of tokens it would silently get
    one-dimensional statistics.

    Each image has its own statistics, in training and in evaluation. Distributed training has nothing to synchronize,
    so there is no SyncDTN as there is a SyncBatchNorm.

    Args:
        num_features: Channels C.
        num_heads: Heads N of the attention after this norm; divides C. Each head has its own P and lambda.
        eps: Added to the variance. With another `init` than 'paper', backbones take over the eps of the replaced norm.
        pool: Side, in tokens, of the windows over which the inter-token statistics are pooled (paper, B.1).
        form: 'paper' is Algorithm 1. 'published' is the arithmetic of the authors' code, for their checkpoints: each
            head of x is first divided by its root mean square, and the intra-token variance is unbiased.
        only_var: Use the intra-token mean only; there is then no `mean_logit`.
        init: 'paper' initializes lambda to 0.5, for random initialization. 'layer_norm' and a number also accept
            LayerNorm weights from a checkpoint. 'layer_norm' initializes lambda so close to 1 that a network trained
            with LayerNorm keeps its outputs; with the same `eps` its feature maps stay within 1e-3. lambda then moves
            slowly: give its logits a higher learning rate. A number between 0 and 1 is the initial lambda itself.
        grid: Layout of a rank-3 input: (H, W) for (B, H * W, C), 'sequence' for (B, T, C), a grid of 1 x T.

    Attributes:
        weight, bias: gamma and beta (C,).
        mean_logit, var_logit: Logits of lambda for mean and variance (N,).
        position: [a1, a2, a3] of Eq. 6, the factors of dx^2 + dy^2, dx and dy, (N, 3).

    Raises:
        ValueError: for arguments out of range, and for an input whose shape does not fit.
    """

    is_token_norm = True

    def __init__(
        self,
        num_features: int,
        num_heads: int,
        eps: float = 1e-5,
        pool: int = 1,
        form: Literal['paper', 'published'] = 'paper',
        only_var: bool = False,
        init: Literal['paper', 'layer_norm'] | float = 'paper',
        grid: tuple[int, int] | Literal['sequence'] | None = None,
    ) -> None:
        if not isinstance(num_heads, int) or num_heads < 1 or num_features % num_heads:
            raise ValueError(f'DTN: num_heads={num_heads!r} must divide num_features={num_features}')
        if not isinstance(pool, int) or pool < 1:
            raise ValueError(f'DTN: pool={pool!r} must be an integer of at least 1, in tokens')
        if form not in ('paper', 'published'):
            raise ValueError(f"DTN: form={form!r} must be 'paper' or 'published'")
        if init not in ('paper', 'layer_norm') and not (isinstance(init, float) and 0 < init < 1):
            raise ValueError(f"DTN: init={init!r} must be 'paper', 'layer_norm' or a number between 0 and 1")
        if init != 'paper' and form != 'paper':
            raise ValueError(f"DTN: init={init!r} needs form='paper': the published form divides tokens by their RMS")
        if form == 'published' and num_features == 1:
            raise ValueError('DTN: the unbiased variance of the published form needs num_features of at least 2')
        if grid not in (None, 'sequence') and (isinstance(grid, str | int) or len(grid) != 2):
            raise ValueError(f"DTN: grid={grid!r} must be (height, width), 'sequence' or None")
        super().__init__(num_features, eps=eps)
        self.num_heads = num_heads
        self.pool = pool
        self.form = form
        self.init = init
        self.grid = grid
        self.register_parameter('mean_logit', None if only_var else nn.Parameter(torch.empty(num_heads)))
        self.var_logit = nn.Parameter(torch.empty(num_heads))
        self.position = nn.Parameter(torch.empty(num_heads, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets LayerNorm's gamma and beta, lambda by `init`, and P by Eq. 7.

        Eq. 7 does not cover heads beyond a square number. They are initialized to [-1, 0, 0], and in the published form
        to a truncated normal with standard deviation 0.02, as in the authors' code. (In the paper form a random a1 > 0
        would fix the head on a far corner of a detector's grid.)
        """
        super().reset_parameters()
        if not hasattr(self, 'position'):
            return  # called by nn.LayerNorm's constructor, before the other parameters exist
        logit = {'paper': 0.0, 'layer_norm': LAYER_NORM_LOGIT}.get(str(self.init))
        for parameter in (self.mean_logit, self.var_logit):
            if parameter is not None:
                nn.init.constant_(parameter, math.log(self.init / (1 - self.init)) if logit is None else logit)
        with torch.no_grad():
            self.position[:, 0] = -1
            self.position[:, 1:] = 2 * attention_centers(self.num_heads)
            if self.form == 'published':
                nn.init.trunc_normal_(self.position[math.isqrt(self.num_heads) ** 2 :], std=0.02)

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C), or rank 3 as `grid` says.

        `valid`, an int tensor (B, 2), is the height and width, in tokens, of the rectangle at the top left of each
        image's grid that is image and not padding. The tokens inside are normalized as if the image were alone, the
        others by their own statistics. The published form ignores it.
        """
        out = dtn(
            self._as_grid(x),
            self.weight,
            self.bias,
            self.mean_logit,
            self.var_logit,
            self.position,
            eps=self.eps,
            pool=self.pool,
            form=self.form,
            valid=valid if self.form == 'paper' else None,
        )
        return out if x.ndim == 4 else out.view(x.shape)

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
        return (
            f'{self.normalized_shape[0]}, num_heads={self.num_heads}, eps={self.eps}, pool={self.pool}, '
            f'form={self.form!r}, only_var={self.mean_logit is None}, init={self.init!r}, grid={self.grid!r}'
        )
