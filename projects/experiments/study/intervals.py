"""Statistics of a study: mean and spread over seeds, and paired differences with scipy's t interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from scipy.stats import ttest_rel


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation (n - 1) of n values; the deviation is None for one value."""

    n: int
    mean: float
    deviation: float | None


@dataclass(frozen=True)
class Difference:
    """Paired differences, their mean, and the half width of its 95% t interval, which is None for one pair."""

    values: tuple[float, ...]
    mean: float
    half_width: float | None

    @property
    def is_shown(self) -> bool:
        """Returns whether the interval excludes zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def summarise(values: Sequence[float]) -> Summary:
    """Returns the mean and the sample standard deviation."""
    if not values:
        raise ValueError('values must not be empty')
    return Summary(len(values), mean(values), stdev(values) if len(values) > 1 else None)


def paired_difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Returns the differences of pairs, value minus baseline, with the interval of scipy's paired t test."""
    if len(values) != len(baseline) or not values:
        raise ValueError(f'values and baseline must be pairs, got {len(values)} and {len(baseline)}')
    differences = tuple(value - other for value, other in zip(values, baseline, strict=True))
    if len(set(differences)) == 1:  # scipy has no interval for one pair, and warns about equal differences
        return Difference(differences, differences[0], None if len(differences) == 1 else 0.0)
    interval = ttest_rel(values, baseline).confidence_interval(0.95)
    return Difference(differences, mean(differences), float(interval.high - interval.low) / 2)
