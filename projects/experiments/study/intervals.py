"""Statistics of a study: mean and spread over seeds, and differences with intervals over seeds, or seeds and images."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np
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


def two_way_interval(
    values: np.ndarray, baseline: np.ndarray, draws: int = 20_000, level: float = 0.95
) -> tuple[float, float, float]:
    """Bootstrap interval of a difference over seeds and test images, which all seeds share.

    Each draw takes one resample of the images for all runs, and draws the seeds with replacement (the pigeonhole
    bootstrap, Owen 2007). The deviation of the seeds is enlarged by sqrt(S / (S - 1)), without which few seeds would
    seem to vary too little. With one seed the interval covers the images only.

    Args:
        values: (S, N): the metric of S seeds on N resamples of the images.
        baseline: (S, N): the other arm, on the same seeds and resamples.
        draws: Number of draws.
        level: Probability of the interval.

    Returns:
        Lower end, upper end, and the two-sided p value of no difference.
    """
    if np.ndim(values) != 2 or np.shape(values) != np.shape(baseline) or not np.size(values):
        raise ValueError(f'expected two arrays of seeds x resamples, got {np.shape(values)} and {np.shape(baseline)}')
    differences = np.asarray(values, float) - np.asarray(baseline, float)
    seeds, number = differences.shape
    rng = np.random.default_rng(0)
    weights = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=draws) / seeds
    weights = 1 / seeds + (weights - 1 / seeds) * (seeds / max(seeds - 1, 1)) ** 0.5
    drawn = (weights * differences[:, rng.integers(number, size=draws)].T).sum(1)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    p = 2 * min((drawn <= 0).mean(), (drawn >= 0).mean())
    return float(low), float(high), float(min(1.0, max(p, 1 / draws)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p values that hold for all of the comparisons together, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
