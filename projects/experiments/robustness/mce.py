"""Summaries of errors and precisions under corruption: mCE, relative mCE, mPC and rPC.

CE, mCE, relative mCE: Hendrycks & Dietterich, 2019. mPC, rPC: Michaelis et al., 2019, Eq. 1 and 2. All in percent.
"""

import math
from collections.abc import Mapping
from statistics import mean

Cells = Mapping[str, Mapping[int, float]]
"""Corruption -> severity -> value in percent."""

ALEXNET_CLEAN_ERROR = 43.5
# AlexNet's errors on the published files of ImageNet-C, 224 x 224, severities 1 to 5. Their means are the published
# divisors of mCE: 88.6, 89.4, 92.3, 82.0, 82.6, 78.6, 79.8, 86.7, 82.7, 81.9, 56.5, 85.3, 64.6, 71.8,
# 60.7.
_ALEXNET = dict(
    gaussian_noise=(69.528, 82.542, 93.554, 98.138, 99.452),
    shot_noise=(71.224, 85.108, 93.574, 98.182, 99.146),
    impulse_noise=(78.374, 89.808, 94.870, 98.720, 99.548),
    defocus_blur=(65.624, 73.202, 85.036, 91.364, 94.714),
    glass_blur=(64.308, 75.054, 88.806, 91.622, 93.344),
    motion_blur=(58.430, 70.048, 82.108, 89.750, 92.638),
    zoom_blur=(70.008, 76.992, 80.784, 84.198, 87.198),
    snow=(71.726, 88.392, 86.468, 91.870, 94.952),
    frost=(61.390, 79.734, 88.790, 89.942, 93.430),
    fog=(67.474, 76.050, 84.378, 87.260, 94.500),
    brightness=(45.140, 48.502, 54.048, 62.166, 72.440),
    contrast=(64.548, 76.150, 88.874, 97.760, 99.270),
    elastic_transform=(52.596, 70.116, 55.686, 64.076, 80.554),
    pixelate=(52.218, 54.620, 73.728, 87.092, 91.262),
    jpeg_compression=(51.002, 54.718, 57.294, 65.458, 74.778),
)
ALEXNET_ERRORS: Cells = {name: dict(enumerate(errors, start=1)) for name, errors in _ALEXNET.items()}


def severity_means(cells: Cells) -> dict[str, float]:
    """Returns the mean of each corruption over its severities."""
    return {corruption: mean(by_severity.values()) for corruption, by_severity in cells.items()}


def corruption_errors(errors: Cells, baseline: Cells) -> dict[str, float]:
    """Returns CE of each corruption: its errors summed over severities, divided by the baseline's sum.

    mCE is the mean of CE. CE is NaN if the baseline has no error.
    """
    return {
        corruption: _percent(sum(by_severity.values()), sum(baseline[corruption][s] for s in by_severity))
        for corruption, by_severity in errors.items()
    }


def relative_corruption_errors(
    errors: Cells, clean_error: float, baseline: Cells, baseline_clean_error: float
) -> dict[str, float]:
    """Returns relative CE of each corruption: its increase of the clean error, divided by the baseline's increase.

    It is NaN if the baseline's error does not increase.
    """
    return {
        corruption: _percent(
            sum(error - clean_error for error in by_severity.values()),
            sum(baseline[corruption][s] - baseline_clean_error for s in by_severity),
        )
        for corruption, by_severity in errors.items()
    }


def mean_performance(cells: Cells) -> float:
    """Returns mPC: the mean over corruptions of the mean over their severities."""
    return mean(severity_means(cells).values())


def relative_performance(cells: Cells, clean: float) -> float:
    """Returns rPC: mPC in percent of the performance on clean images; NaN if that is 0."""
    return _percent(mean_performance(cells), clean)


def _percent(part: float, whole: float) -> float:
    return 100 * part / whole if whole > 1e-9 else math.nan
