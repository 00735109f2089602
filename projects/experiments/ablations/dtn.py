"""DTN with a lambda or weights P that are not learned (DTN paper, Table 5 and 4.3)."""

import math
from collections.abc import Sequence
from typing import Literal

from torch import nn

from tokennorm.norms import DTN

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


def _logit(value: float) -> float:
    """Inverse of the sigmoid, infinite at 0 and 1."""
    return -math.inf if value == 0 else math.inf if value == 1 else math.log(value / (1 - value))
