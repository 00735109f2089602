"""The few statistics of a study: mean and spread over seeds, and paired differences with a t interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from scipy.stats import t as student_t


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation (n - 1) of n values; the deviation is None for one value."""

    n: int
    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Difference:
    """Paired differences, their mean, and the half width of its 95% t interval; None for one pair."""

    values: tuple[float, ...]
    mean: float
    half_width: float | None

    @property
    def is_shown(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def summarise(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation.

    Raises:
        ValueError: without values.
    """
    if not values:
        raise ValueError('values must not be empty')
    return Summary(len(values), mean(values), stdev(values) if len(values) > 1 else None)


def paired_difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Differences of pairs, value minus baseline: mean +- t(0.975, n - 1) * s / sqrt(n).

    Raises:
        ValueError: where the two are not of one length, or empty.
    """
    if len(values) != len(baseline) or not values:
        raise ValueError(f'values and baseline must be pairs, got {len(values)} and {len(baseline)}')
    differences = tuple(value - other for value, other in zip(values, baseline, strict=True))
    n = len(differences)
    half_width = float(student_t.ppf(0.975, n - 1)) * stdev(differences) / math.sqrt(n) if n > 1 else None
    return Difference(differences, mean(differences), half_width)
