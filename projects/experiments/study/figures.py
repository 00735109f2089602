"""Figures of the docs, from the kept results."""

from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

from experiments.study.page import COLUMNS, METRICS, Pages, values_of
from experiments.study.plan import ARMS, BASELINE
from experiments.study.results import value_at

TECHNIQUES = COLUMNS | {'Dual PatchNorm': ('LN+DPN', BASELINE)}


def plot_summary(pages: Pages, path: Path) -> None:
    """Draws every difference of the summary on one scale, in points: runs, mean and interval."""
    rows = pages.summary_rows()
    figure = Figure(figsize=(9, 1.6 + 0.55 * len(rows)), layout='constrained')
    axes = figure.subplots()
    for row, name in enumerate(rows.values()):
        _, stage, records = pages.stage(name)
        found = {column: pages.difference(name, *pair) for column, pair in TECHNIQUES.items()}
        found = {column: difference for column, difference in found.items() if difference is not None}
        for number, (column, difference) in enumerate(found.items()):
            y = row + 0.22 * (number - (len(found) - 1) / 2)
            arm, other = TECHNIQUES[column]
            baseline = mean(values_of(records, stage.metric, other))
            runs = [value - baseline for value in values_of(records, stage.metric, arm)]
            color = f'C{list(TECHNIQUES).index(column)}'
            if ends := difference.interval():
                axes.plot(ends, [y, y], color=color, lw=2)
            axes.plot(runs, [y] * len(runs), '|', color='black', ms=7)
            axes.plot(difference.mean, y, 's', color=color, ms=5, label=column)
    axes.axvline(0, color='black', lw=0.8)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlabel('minus LayerNorm: points of accuracy, AP')
    axes.grid(alpha=0.3, axis='x')
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc='outside lower center', ncols=2)
    figure.savefig(path, dpi=110)


def plot_curves(pages: Pages, name: str, path: Path) -> None:
    """Draws the metric of each arm of a stage, mean over the seeds, against epochs and against processor minutes."""
    _, stage, records = pages.stage(name)
    figure = Figure(figsize=(10, 4), layout='constrained')
    for axes, what in zip(figure.subplots(1, 2), ('epoch', 'processor minutes'), strict=True):
        for arm in dict.fromkeys(arm for arm, _ in records):
            if what != 'epoch' and arm not in ARMS:  # as in the tables: other arms have no comparable times
                continue
            own = [record for (other, _), record in records.items() if other == arm]
            epochs = sorted(set.intersection(*(set(map(int, record['curve'])) for record in own)))
            minutes = mean(record['cpu_seconds'] / 60 / record['epochs'] for record in own)
            values = [mean(value_at(record, epoch, stage.metric) for record in own) for epoch in epochs]
            steps = epochs if what == 'epoch' else [epoch * minutes for epoch in epochs]
            axes.plot(steps, values, marker='.', label=f'{arm} ({len(own)} seeds)')
        axes.set(xlabel=what, ylabel=METRICS[stage.metric])
        axes.grid(alpha=0.3)
        if records:
            axes.legend()
    figure.savefig(path, dpi=110)
