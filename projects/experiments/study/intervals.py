"""Statistics of a study: the difference of two arms, with one interval that covers the runs and the test images.

The score of run r of arm a on image i is taken as

    score = arm + image + (arm x image) + run + (run x image).

Both arms are tested on the same images, so `image` cancels. A seed is a draw and not a pair: the runs of two arms are
independent. The variance of the difference of A and B, with R runs each on N images, is then

    var(run mean of A) / R_A + var(run mean of B) / R_B + 2 var(arm x image) / N.

The deviation of an arm's runs gives the first two terms, and contains run x image already. The scores per image give
the last one. They also give run x image, which a variance of two or three runs must not fall below by chance. The
interval is Student's t with the degrees of freedom of Satterthwaite (1946). A plan of two runs per arm may take the
deviation of the runs as equal in all arms of a stage and pool it, since two runs alone have one degree of freedom.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, variance

import numpy as np
from scipy.stats import t as student_t


@dataclass(frozen=True)
class ImageError:
    """Variance that is due to the choice of the test images.

    Args:
        arms: Of the difference of two arms, however many runs they have: 2 var(arm x image) / N.
        run: Of one run, by arm: var(run x image) / N.
        images: N, number of test images.
        is_borrowed: It was measured in other stages.
    """

    arms: float
    run: tuple[float, float]
    images: int
    is_borrowed: bool = False

    def of_difference(self, runs: tuple[int, int]) -> float:
        """Variance of a difference with so many runs of each arm, if only the images were drawn anew."""
        return self.arms + self.run[0] / runs[0] + self.run[1] / runs[1]

    def borrowed(self, images: int) -> 'ImageError':
        """Returns the error with the same variances per image and another number of images."""
        factor = self.images / images
        return ImageError(factor * self.arms, (factor * self.run[0], factor * self.run[1]), images, is_borrowed=True)


@dataclass(frozen=True)
class Difference:
    """The mean over the runs of one arm minus the mean of another.

    Args:
        mean: The difference.
        runs: Number of runs of each arm.
        images: Error that is due to the images; None if it is unknown.
        error: Standard error; None if it is unknown: an arm has one run, or `images` is None.
        freedom: Degrees of freedom of `error`.
    """

    mean: float
    runs: tuple[int, int]
    images: ImageError | None = None
    error: float | None = None
    freedom: float | None = None

    @property
    def images_error(self) -> float | None:
        """Standard error that is due to the images alone."""
        return None if self.images is None else self.images.of_difference(self.runs) ** 0.5

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Ends of the interval; None if the error is unknown."""
        if self.error is None:
            return None
        half = float(student_t.ppf((1 + level) / 2, self.freedom)) * self.error
        return self.mean - half, self.mean + half

    @property
    def p(self) -> float | None:
        """Two-sided p value of no difference; None if the error is unknown."""
        return None if self.error is None else 2 * float(student_t.sf(abs(self.mean) / self.error, self.freedom))

    @property
    def is_shown(self) -> bool:
        """Returns whether the 95% interval excludes zero."""
        return self.p is not None and self.p < 0.05


def difference_of(
    values: Sequence[float],
    baseline: Sequence[float],
    images: ImageError | None,
    pooled: Sequence[Sequence[float]] = (),
) -> Difference:
    """Returns the difference of two arms from the metric of each of their runs.

    Args:
        values: The metric of each run.
        baseline: That of the other arm.
        images: Error that is due to the images; without it the difference has no interval.
        pooled: The values of each arm, these two included, whose runs have one variance; without them each arm has its
            own.
    """
    runs = (len(values), len(baseline))
    difference = mean(values) - mean(baseline)
    if images is None or min(runs) < 2:
        return Difference(difference, runs, images)
    several = [own for own in pooled if len(own) > 1]
    freedom_of_runs = sum(len(own) - 1 for own in several)
    variances = [variance(values), variance(baseline)]
    if several:
        variances = [sum((len(own) - 1) * variance(own) for own in several) / freedom_of_runs] * 2
    parts = [max(own, least) / number for own, least, number in zip(variances, images.run, runs, strict=True)]
    freedoms = [runs[0] - 1, runs[1] - 1]
    if several:  # both are one estimate
        parts, freedoms = [sum(parts)], [freedom_of_runs]
    parts.append(images.arms)
    freedoms.append(images.images - 1)
    total = sum(parts)
    if not total:  # nothing varies, such as the AP of detectors that found nothing
        return Difference(difference, runs, images)
    freedom = total**2 / sum(part**2 / own for part, own in zip(parts, freedoms, strict=True))
    return Difference(difference, runs, images, total**0.5, freedom)


def image_error(values: np.ndarray, baseline: np.ndarray, factor: float, images: int) -> ImageError:
    """Measures the error that is due to the images, of two arms that were scored on the same ones.

    Args:
        values: (R, K), R of at least 2: for each run, K values whose variance times `factor` is that of the metric over
            draws of the images, in an order that all runs share. See `experiments.study.scoring.image_scores`.
        baseline: The other arm, with runs of its own.
        factor: 1 / images for scores of each image, 1 for the metric on K resamples.
        images: Number of images.
    """
    run = (factor * _interaction(values), factor * _interaction(baseline))
    both = factor * float((values.mean(0) - baseline.mean(0)).var(ddof=1))
    return ImageError(max(0.0, both - run[0] / len(values) - run[1] / len(baseline)), run, images)


def mean_image_error(errors: Sequence[ImageError]) -> ImageError:
    """Returns the variances per image, averaged over several comparisons, as an error of one image."""
    run = mean(error.images * sum(error.run) / 2 for error in errors)
    return ImageError(mean(error.images * error.arms for error in errors), (run, run), 1)


def _interaction(scores: np.ndarray) -> float:
    """Variance of run x column in a table of runs and columns, (R, K), from its residuals in both directions."""
    runs, columns = scores.shape
    residuals = scores - scores.mean(0) - scores.mean(1, keepdims=True) + scores.mean()
    return float((residuals**2).sum() / ((runs - 1) * (columns - 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p values that hold for all of the comparisons together, in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected
