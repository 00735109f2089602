"""Summaries of errors and precisions under corruption: mCE, relative mCE, mPC and rPC, their baselines and tables.

CE, mCE, relative mCE: Hendrycks & Dietterich, 2019. mPC, rPC: Michaelis et al., 2019, Eq. 1 and 2. All in percent.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.robustness import ALEXNET, CORRUPTIONS, SEVERITIES
from experiments.robustness.results import CLEAN, Cell, Results, cell_name, differences

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


@dataclass(frozen=True)
class Baseline:
    """Errors in percent, their model, and the differences between its evaluation and the model's."""

    name: str
    clean_error: float
    errors: Cells
    notes: tuple[str, ...] = ()


def alexnet_baseline(
    num_classes: int, subset: bool, image_size: tuple[int, int], images: int, published: bool = False
) -> Baseline:
    """Returns AlexNet's errors on the published files of ImageNet-C; `published` says that the model is on them too."""
    if num_classes != 1000 or subset:
        chosen = ', restricted to some' if subset else ''
        raise ValueError(
            f"--baseline {ALEXNET}: its errors are on ImageNet's 1000 classes, the model has {num_classes}{chosen}; "
            'evaluate another model on this data and give its file: --baseline FILE'
        )
    notes = []
    if not published:
        notes.append(
            "computed on the fly; AlexNet's errors are on the published files, which have other elastic transforms"
        )
    if image_size != (224, 224):
        notes.append(f"images of {image_size[1]} x {image_size[0]}; AlexNet's errors are on 224 x 224")
    if images != 50_000:
        notes.append(f"{images} images; AlexNet's errors are on all 50000 of ImageNet's validation set")
    return Baseline(
        'AlexNet on ImageNet-C (Hendrycks & Dietterich, 2019)', ALEXNET_CLEAN_ERROR, ALEXNET_ERRORS, tuple(notes)
    )


def file_baseline(path: Path, results: Results, cells: Sequence[Cell], metric: str) -> Baseline:
    """Returns the errors of another model on the same corrupted images, from its file."""
    baseline = Results.read(path)
    other = differences(baseline.settings, results.settings, ('data', 'library'))
    if other:
        raise ValueError(f'--baseline {path} has other {" and ".join(other)}: evaluate it as this model')
    absent = [cell for cell in (CLEAN, *cells) if cell not in baseline]
    if absent:
        names = ', '.join(cell_name(cell) for cell in absent[:5])
        raise ValueError(
            f'--baseline {path} lacks {len(absent)} results ({names}): evaluate them first, with --out {path}'
        )
    notes = ()
    if baseline.settings['pipeline'] != results.settings['pipeline']:
        notes = ('the baseline was evaluated with another pipeline, and therefore on other corrupted images',)
    accuracies = baseline.table(cells, metric)
    errors = {c: {s: 100 - accuracy for s, accuracy in values.items()} for c, values in accuracies.items()}
    name = f'{baseline.settings["checkpoint"]} ({path})'
    return Baseline(name, 100 - baseline.get(CLEAN, metric), errors, notes)


def classifier_report(clean_error: float, errors: Cells, baseline: Baseline | None) -> tuple[dict[str, Any], str]:
    """Reports errors of a classifier in percent and, with a baseline, CE, mCE and relative mCE.

    Returns:
        The values by name, and a table with them.
    """
    if not errors:
        return dict(clean_error=clean_error), f'clean error {clean_error:.2f}'
    means = severity_means(errors)
    columns = dict(mean=means)
    figures: dict[str, Any] = dict(clean_error=clean_error, mean_error=_mean(means), errors=means)
    lines = [
        f'clean error {clean_error:.2f}',
        f'mean error under corruption {_mean(means):.2f}, not divided by any baseline',
    ]
    if baseline is not None:
        ce = corruption_errors(errors, baseline.errors)
        relative = relative_corruption_errors(errors, clean_error, baseline.errors, baseline.clean_error)
        columns |= {'CE': ce, 'relative CE': relative}
        figures |= dict(
            baseline=baseline.name, CE=ce, mCE=_mean(ce), relative_CE=relative, relative_mCE=_mean(relative)
        )
        lines.append(f'mCE {_figure(_mean(ce))}, relative mCE {_figure(_mean(relative))}; 100 is {baseline.name}')
        lines += [f'  note: {note}' for note in baseline.notes]
    return _without_nan(figures), '\n'.join([_table(errors, columns), '', *lines, *_what_is_left_out(errors)])


def detector_report(clean: float, precisions: Cells, name: str) -> tuple[dict[str, Any], str]:
    """Reports AP of a detector in percent under corruption: mPC, and rPC, relative to AP on clean images.

    Returns:
        The values by name, and a table with them.
    """
    if not precisions:
        return dict(clean_AP=clean), f'clean {name} AP {clean:.1f}'
    means = severity_means(precisions)
    mpc, rpc = mean_performance(precisions), relative_performance(precisions, clean)
    figures = dict(clean_AP=clean, mPC=mpc, rPC=rpc, AP=means)
    lines = [f'clean {name} AP {clean:.1f}', f'mPC {mpc:.2f} {name} AP, rPC {_figure(rpc)}% of clean']
    return _without_nan(figures), '\n'.join(
        [_table(precisions, dict(mean=means)), '', *lines, *_what_is_left_out(precisions)]
    )


def _table(cells: Cells, columns: Mapping[str, Mapping[str, float]]) -> str:
    """Formats one row per corruption: each severity, then the columns."""
    severities = sorted({severity for by_severity in cells.values() for severity in by_severity})
    rows = [['corruption', *map(str, severities), *columns]]
    for corruption, by_severity in cells.items():
        figures = [by_severity[severity] for severity in severities] + [
            column[corruption] for column in columns.values()
        ]
        rows.append([corruption, *map(_figure, figures)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return '\n'.join(
        '  '.join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def _what_is_left_out(cells: Cells) -> list[str]:
    """Returns a note if the means leave out corruptions or severities of the benchmark."""
    left_out = len(CORRUPTIONS) - len(cells)
    severities = sorted({severity for by_severity in cells.values() for severity in by_severity})
    parts = [f'{len(cells)} of the {len(CORRUPTIONS)} corruptions'] if left_out else []
    parts += [f'severities {", ".join(map(str, severities))} only'] if len(severities) < len(SEVERITIES) else []
    return [f'  note: means over {" and ".join(parts)}'] if parts else []


def _mean(values: Mapping[str, float]) -> float:
    return mean(values.values())


def _figure(value: float) -> str:
    return '-' if math.isnan(value) else f'{value:.1f}'


def _without_nan(figures: Any) -> Any:
    """Replaces NaN, which JSON does not have, by None."""
    if isinstance(figures, Mapping):
        return {name: _without_nan(value) for name, value in figures.items()}
    return None if isinstance(figures, float) and math.isnan(figures) else figures
