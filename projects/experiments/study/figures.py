"""Figures of a study: the curves of a stage, and one summary of all paired differences from LN."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.study.intervals import Difference, paired_difference
from experiments.study.plan import BASELINE, Study
from experiments.study.results import Records

METRICS = {'accuracy/top1': 'top-1 accuracy (%)', 'coco/bbox_mAP': 'box AP', 'coco/segm_mAP': 'mask AP'}


def value_at(record: Mapping[str, Any], epoch: int, metric: str) -> float:
    """The metric after an epoch. `CocoMetric` gives none if a detector found nothing, which is an AP of 0."""
    values = record['curve'][str(epoch)]
    return values.get(metric, 0.0) if metric.startswith('coco/') else values[metric]


def final_values(records: Records, metric: str) -> dict[tuple[str, int], float]:
    """The metric at the last epoch of the finished runs, by arm and seed."""
    return {key: value_at(r, r['epochs'], metric) for key, r in records.items() if r['finished']}


def arm_difference(values: Mapping[tuple[str, int], float], arm: str, other: str) -> Difference | None:
    """One arm minus another, paired by seed, over the seeds that have both; None for no such seed."""
    seeds = [seed for name, seed in values if name == arm and (other, seed) in values]
    return paired_difference(*([values[name, seed] for seed in seeds] for name in (arm, other))) if seeds else None


def plot_curves(path: Path, records: Records, metric: str) -> None:
    """Writes the metric against epochs: a line for the mean over the seeds of an arm, a band for their range."""
    figure = Figure(figsize=(8, 4.5), layout='constrained')
    axes = figure.subplots()
    for i, arm in enumerate(dict.fromkeys(arm for arm, _ in records)):
        own = [record for (name, _), record in records.items() if name == arm and record['finished']]
        epochs = sorted(set.intersection(*(set(map(int, record['curve'])) for record in own))) if own else []
        values = [[value_at(record, epoch, metric) for record in own] for epoch in epochs]
        means = [sum(v) / len(v) for v in values]
        axes.plot(epochs, means, color=f'C{i}', marker='.', label=f'{arm} ({len(own)} seeds)')
        axes.fill_between(epochs, [min(v) for v in values], [max(v) for v in values], color=f'C{i}', alpha=0.15, lw=0)
    axes.set(xlabel='epoch', ylabel=METRICS.get(metric, metric))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)


def plot_summary(path: Path, study: Study, records: Mapping[str, Records]) -> None:
    """Writes one panel per stage of `study.summary`: each arm minus LN, a dot per seed, the mean, its 95% interval."""
    found = {}
    for name, stage in study.stages.items():
        if name not in study.summary if study.summary else len(stage.seeds or study.seeds) < 2:
            continue
        values = final_values(records[name], stage.metric)
        differences = {arm: arm_difference(values, arm, BASELINE) for arm in stage.arms if arm != BASELINE}
        if any(differences.values()):
            found[name] = {arm: difference for arm, difference in differences.items() if difference is not None}
    if not found:
        return
    columns = min(len(found), 3)
    rows = -(-len(found) // columns)
    height = rows * (1.2 + 0.42 * max(map(len, found.values())))
    figure = Figure(figsize=(4.2 * columns + 1, height), layout='constrained')
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[len(found) :]:
        axes.remove()
    for axes, (name, differences) in zip(panels, found.items(), strict=False):
        for row, difference in enumerate(differences.values()):
            colour = 'C0' if not difference.is_shown else 'C2' if difference.mean > 0 else 'C3'
            axes.errorbar(difference.mean, row, xerr=difference.half_width, fmt='s', color=colour, capsize=3)
            axes.plot(difference.values, [row + 0.25] * len(difference.values), '.', color='grey', ms=4)
        axes.axvline(0, color='black', lw=0.8)
        axes.set_yticks(range(len(differences)), list(differences))
        axes.set_ylim(len(differences) - 0.5, -0.5)
        axes.set_title(study.stages[name].title or name)
        axes.set_xlabel(f'{METRICS.get(study.stages[name].metric, study.stages[name].metric)}, minus LN')
        axes.locator_params(axis='x', nbins=4)
        axes.grid(alpha=0.3, axis='x')
    figure.savefig(path, dpi=130)
