"""DTN with a lambda or weights P that are not learned (DTN paper, Table 5, 4.3 and Fig. 5)."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.norms import DTN
from tokennorm.ops.dtn_eager import intra_token_stats
from tokennorm.ops.moments import check_valid

POSITION_WEIGHTS = ('eq7', 'trunc_normal', 'frozen', 'uniform')


class AblatedDTN(DTN):
    """`DTN` whose lambda or P may be fixed; its other arguments are those of `DTN`.

    Args:
        fixed_lambda: lambda of mean and variance, or (mean, variance), if it is not learned: 0 to 1, None is learned
            (paper, Table 5). 0 is purely inter-token, 1 is LayerNorm. Its logits are then buffers that are not in the
            state dict.
        position_weights: Initialization of P and whether it is learned. 'eq7' is Eq. 7, 'trunc_normal' a truncated
            normal with standard deviation 0.02 (paper, 4.3, which does not state the deviation); both are learned.
            'frozen' is Eq. 7 and 'uniform' is P = 1 / T (paper, Table 5); both are not learned.
    """

    def __init__(
        self,
        num_features: int,
        num_heads: int,
        eps: float = 1e-5,
        pool: int = 1,
        form: Literal['paper', 'published'] = 'paper',
        only_var: bool = False,
        grid: tuple[int, int] | Literal['sequence'] | None = None,
        fixed_lambda: float | Sequence[float | None] | None = None,
        position_weights: Literal['eq7', 'trunc_normal', 'frozen', 'uniform'] = 'eq7',
    ) -> None:
        pair = tuple(fixed_lambda) if isinstance(fixed_lambda, Sequence) else (fixed_lambda, fixed_lambda)
        if len(pair) != 2 or not all(v is None or (isinstance(v, int | float) and 0 <= v <= 1) for v in pair):
            raise ValueError(
                f'AblatedDTN: fixed_lambda={fixed_lambda!r} must be 0 to 1, one number or (mean, variance), or None'
            )
        if position_weights not in POSITION_WEIGHTS:
            raise ValueError(
                f'AblatedDTN: position_weights={position_weights!r} must be one of {", ".join(POSITION_WEIGHTS)}'
            )
        self.fixed_lambda = pair
        self.position_weights = position_weights
        super().__init__(num_features, num_heads, eps, pool, form, only_var, grid=grid)
        for name, value in zip(('mean_logit', 'var_logit'), pair, strict=True):
            logit = getattr(self, name)
            if value is not None and logit is not None:
                delattr(self, name)
                self.register_buffer(name, logit.detach(), persistent=False)
        self.position.requires_grad_(position_weights in ('eq7', 'trunc_normal'))

    def reset_parameters(self) -> None:
        """Sets LayerNorm's gamma and beta, lambda to 0.5 or by `fixed_lambda`, and P by `position_weights`."""
        super().reset_parameters()
        if not hasattr(self, 'position'):
            return  # called by nn.LayerNorm's constructor, before the other parameters exist
        for logit, value in zip((self.mean_logit, self.var_logit), self.fixed_lambda, strict=True):
            if logit is not None and value is not None:
                nn.init.constant_(logit, _logit(value))
        if self.position_weights == 'uniform':
            nn.init.zeros_(self.position)
        elif self.position_weights == 'trunc_normal':
            nn.init.trunc_normal_(self.position, std=0.02)

    def extra_repr(self) -> str:
        fixed = f', fixed_lambda={self.fixed_lambda}' if self.fixed_lambda != (None, None) else ''
        weights = f', position_weights={self.position_weights!r}' if self.position_weights != 'eq7' else ''
        return f'{super().extra_repr()}{fixed}{weights}'


class BandedDTN(AblatedDTN):
    """DTN whose P is a k-banded matrix with binary entries, divided by their sum per row (paper, 3.2 and Fig. 5).

    A token's inter-token statistics are those of the `band` tokens around it in raster order: the last token of a row
    is next to the first token of the next row. With `fixed_lambda=0` it is the figure's local version of instance norm.
    P is not learned; `position` is unused. The other arguments are those of `AblatedDTN`.

    Args:
        band: k, in tokens, or in pooled tokens; odd.
    """

    def __init__(
        self,
        num_features: int,
        num_heads: int,
        eps: float = 1e-5,
        pool: int = 1,
        grid: tuple[int, int] | Literal['sequence'] | None = None,
        fixed_lambda: float | Sequence[float | None] | None = None,
        band: int = 3,
    ) -> None:
        if not isinstance(band, int) or band < 1 or band % 2 == 0:
            raise ValueError(f'BandedDTN: band={band!r} must be an odd integer of at least 1, in tokens')
        self.band = band
        super().__init__(
            num_features, num_heads, eps, pool, grid=grid, fixed_lambda=fixed_lambda, position_weights='uniform'
        )

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        """As `DTN`."""
        check_valid('BandedDTN', x, valid)
        grid = self._as_grid(x)
        grid = grid.to(torch.promote_types(x.dtype, torch.float32))
        if valid is None:
            return self._normalize(grid).to(x.dtype).view(x.shape)
        out = F.layer_norm(grid, self.normalized_shape, self.weight, self.bias, self.eps)
        for i, (height, width) in enumerate(valid.clamp(min=1).tolist()):
            out[i : i + 1, :height, :width] = self._normalize(grid[i : i + 1, :height, :width])
        return out.to(x.dtype).view(x.shape)

    def _normalize(self, x: Tensor) -> Tensor:
        """(B, H, W, C) -> (B, H, W, C)."""
        height, width = x.shape[1:3]
        intra = intra_token_stats(x)
        shift = x.mean(dim=(1, 2), keepdim=True).detach()  # keeps the digits of E[x^2] - E[x]^2
        cells = rearrange(x - shift, 'b h w c -> b c h w')
        cells = F.avg_pool2d(cells, self.pool, ceil_mode=True, count_include_pad=False)
        tokens = torch.cat([cells, cells * cells], dim=1).flatten(2)
        tokens = F.avg_pool1d(tokens, self.band, stride=1, padding=self.band // 2, count_include_pad=False)
        mean, square = tokens.unflatten(2, cells.shape[2:]).chunk(2, dim=1)
        inter = (mean, (square - mean * mean).clamp(min=0))
        inter = (t.repeat_interleave(self.pool, 2).repeat_interleave(self.pool, 3) for t in inter)
        inter_mean, inter_var = (rearrange(t[..., :height, :width], 'b c h w -> b h w c') for t in inter)
        mean_ratio, var_ratio = (
            logit.to(x).sigmoid().repeat_interleave(x.shape[-1] // self.num_heads)
            for logit in (self.mean_logit, self.var_logit)
        )
        mean = torch.lerp(inter_mean + shift, intra[0], mean_ratio)
        var = torch.lerp(inter_var, intra[1], var_ratio)
        return (x - mean) / (var + self.eps).sqrt() * self.weight + self.bias

    def extra_repr(self) -> str:
        return f'{super().extra_repr()}, band={self.band}'


def _logit(value: float) -> float:
    """Inverse of the sigmoid, infinite at 0 and 1."""
    return -math.inf if value == 0 else math.inf if value == 1 else math.log(value / (1 - value))
