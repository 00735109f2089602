"""Tables and summaries of a robustness evaluation."""

import math
from collections.abc import Mapping
from statistics import mean
from typing import Any

from experiments.robustness.baselines import Baseline
from experiments.robustness.corruptions import CORRUPTIONS, SEVERITIES
from experiments.robustness.mce import (
    Cells,
    corruption_errors,
    mean_performance,
    relative_corruption_errors,
    relative_performance,
    severity_means,
)


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
    lines = [f'clean {name} AP {clean:.1f}', f'mPC {mpc:.2f} {name} AP, rPC {_figure(rpc)} % of clean']
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
