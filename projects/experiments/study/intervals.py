"""Statistics of a study: differences of two arms with intervals over seeds, or over seeds and test images."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from scipy.stats import ttest_rel


@dataclass(frozen=True)
class Difference:
    """A difference of two arms, paired by seed.

    Args:
        values: The difference of each seed.
        interval: Ends of the 95% interval; None if there is none.
        p: Two-sided p value of no difference; None without an interval.
        images_error: Standard error that is due to the test images; None if they were not scored one by one.
    """

    values: tuple[float, ...]
    interval: tuple[float, float] | None
    p: float | None = None
    images_error: float | None = None

    @property
    def mean(self) -> float:
        return mean(self.values)

    @property
    def is_shown(self) -> bool:
        """Returns whether the interval excludes zero."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)


def paired_difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Returns the differences of pairs, value minus baseline, with scipy's paired t interval over the seeds."""
    if len(values) != len(baseline) or not values:
        raise ValueError(f'values and baseline must be pairs, got {len(values)} and {len(baseline)}')
    differences = tuple(value - other for value, other in zip(values, baseline, strict=True))
    if len(set(differences)) == 1:  # scipy has no interval for one pair, and warns about equal differences
        return Difference(differences, None if len(differences) == 1 else (differences[0], differences[0]))
    test = ttest_rel(values, baseline)
    interval = test.confidence_interval(0.95)
    return Difference(differences, (float(interval.low), float(interval.high)), float(test.pvalue))


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
