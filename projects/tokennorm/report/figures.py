"""Draws the figures of the report as SVG text, with legends in HTML.

Names of classes and runs are in legends only: browsers have fonts for every script, and matplotlib has not.
"""

import html
import io
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from tokennorm.evaluation.analysis import TIDE, Evaluation
from tokennorm.report.scalars import Curve

SIZE = (4.6, 3.3)  # inches; one column of the page at its natural size
# Colors that the page replaces by its own, which follow the reader's light or dark mode
INK, LINES, PAPER = '#0f172a', '#e2e8f1', '#fffffe'
PAGE_COLORS = {INK: 'currentColor', LINES: 'var(--line)', PAPER: 'var(--paper)'}
STYLE = [
    'seaborn-v0_8-whitegrid',
    {
        **dict.fromkeys(('text.color', 'axes.labelcolor', 'xtick.color', 'ytick.color'), INK),
        **dict.fromkeys(('grid.color', 'axes.edgecolor', 'legend.edgecolor'), LINES),
        'legend.facecolor': PAPER,
        'legend.frameon': True,
        'svg.fonttype': 'none',
        'text.parse_math': False,
        'font.size': 9,
        'axes.spines.top': False,
        'axes.spines.right': False,
    },
]
MOST_CURVES = 6


def as_svg(draw: Callable[..., None]) -> Callable[..., str]:
    """Has a function that draws on axes return them as an SVG element, after a legend if there are labels."""

    @wraps(draw)
    def drawn(*args: Any, **kwargs: Any) -> str:
        with matplotlib.style.context(STYLE):
            figure = Figure(figsize=SIZE, layout='constrained')
            draw(axes := figure.subplots(), *args, **kwargs)
            text = io.StringIO()
            figure.savefig(text, format='svg', transparent=True, metadata={'Date': None, 'Creator': None})
        svg = _legend(axes) + text.getvalue()[text.getvalue().index('<svg') :]
        for color, of_page in PAGE_COLORS.items():
            svg = svg.replace(color, of_page)
        return svg

    return drawn


def _legend(axes: Axes) -> str:
    entries = []
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        color = handle.get_color() if isinstance(handle, Line2D) else handle.patches[0].get_facecolor()
        entries.append(f'<span><i style="border-color: {to_hex(color)}"></i><bdi>{html.escape(label[1:])}</bdi></span>')
    return f'<div class="legend">{"".join(entries)}</div>\n' if entries else ''


def _shown(label: str) -> str:
    """Returns a label with a space before it; matplotlib leaves out those that begin with an underscore."""
    return f' {label}'


def _marker(curve: Curve, usual: str = '') -> str:
    """A line through one point is invisible."""
    return usual if len(curve) > 1 else '.'


@as_svg
def draw_curves(axes: Axes, curves: Mapping[str, Curve], xlabel: str, ylabel: str, marker: str = '') -> None:
    """Draws scalars against their steps."""
    for label, curve in curves.items():
        shown = _shown(label) if len(curves) > 1 else None
        axes.plot(list(curve), list(curve.values()), marker=_marker(curve, marker), label=shown)
    axes.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, None), ylim=(0, None))
    axes.xaxis.set_major_locator(MaxNLocator(nbins='auto', integer=True, steps=[1, 2, 5, 10]))


@as_svg
def draw_lambdas(axes: Axes, lambdas: Mapping[str, Curve]) -> None:
    """Draws the mean lambda of each DTN layer over training, light lines first; blue: mean, orange: variance."""
    for kind, colors, label in (('mean', 'Blues', 'of the mean'), ('var', 'Oranges', 'of the variance')):
        found = [curve for name, curve in lambdas.items() if name.endswith(f'.{kind}.mean')]
        for curve, depth in zip(found, np.linspace(0.35, 0.75, len(found)), strict=True):
            style = dict(color=colormaps[colors](depth), linewidth=1.2, marker=_marker(curve))
            (line,) = axes.plot(list(curve), list(curve.values()), **style)
        if found:
            line.set_label(_shown(label))
    axes.set(xlabel='iteration', ylabel='lambda, mean over heads', xlim=(0, None), ylim=(-0.02, 1.02))


@as_svg
def draw_precision_recall(axes: Axes, evaluation: Evaluation) -> None:
    """Draws precision against recall at IoU 0.5: the mean, and of many classes those with the most objects."""
    recalls = np.linspace(0, 100, evaluation.precisions.shape[1])
    pairs = zip(evaluation.classes, evaluation.precisions, strict=True)
    curves = [(result, precision) for result, precision in pairs if result.ap50 is not None]
    for result, precision in sorted(curves, key=lambda curve: -curve[0].objects)[:MOST_CURVES]:
        axes.plot(recalls, 100 * precision, label=_shown(f'{result.name} ({100 * result.ap50:.1f})'))
    if len(curves) > 1:
        mean = np.mean([precision for _, precision in curves], axis=0)
        label = _shown(f'mean of all classes ({100 * mean.mean():.1f})')
        axes.plot(recalls, 100 * mean, color=INK, label=label, linewidth=2.4)
    axes.set(xlabel='recall, %', ylabel='precision, %', xlim=(0, 101), ylim=(0, 102))


@as_svg
def draw_thresholds(axes: Axes, evaluation: Evaluation) -> None:
    """Draws precision, recall and F1 of all classes together against the score threshold."""
    score, *columns = evaluation.sweep.T
    for label, values in zip(('precision', 'recall', 'F1'), columns, strict=True):
        axes.plot(score, 100 * values, label=_shown(label))
    if evaluation.best is not None:
        axes.axvline(evaluation.threshold, color=INK, linewidth=1, linestyle='--')
    axes.set(xlabel='score threshold', ylabel='%', xlim=(0, 1), ylim=(0, 102))


@as_svg
def draw_tide(axes: Axes, results: Mapping[str, Mapping[str, float]]) -> None:
    """Draws the AP50 that each of TIDE's error types costs, a bar per evaluation."""
    height = 0.8 / len(results)
    rows = np.arange(len(TIDE))
    for i, (label, lost) in enumerate(results.items()):
        shown = _shown(label) if len(results) > 1 else None
        bars = axes.barh(rows + i * height, [100 * lost[key] for key in TIDE], height * 0.9, label=shown)
        axes.bar_label(bars, fmt='%.1f', padding=3)
    axes.set_yticks(rows + 0.4 - height / 2, list(TIDE.values()))
    axes.invert_yaxis()
    axes.set(xlabel='AP50 lost, in points', xlim=(0, None))
    axes.margins(x=0.12)


@as_svg
def draw_sizes(axes: Axes, object_sizes: np.ndarray, anchor_sizes: Mapping[int, Sequence[float]]) -> None:
    """Draws a histogram of object sizes, with the range of anchor sizes of each feature level above it."""
    sizes = np.maximum(object_sizes, 1)
    everything = np.concatenate([sizes, *anchor_sizes.values()])
    low, high = everything.min() / 1.2, everything.max() * 1.2
    counts, *_ = axes.hist(sizes, bins=np.geomspace(low, high, 40))
    for i, (stride, anchors) in enumerate(anchor_sizes.items()):
        y = counts.max() * (1.08 + 0.07 * i)
        axes.plot((min(anchors), max(anchors)), (y, y), color='C1', linewidth=3, solid_capstyle='butt')
        axes.text(1.05 * max(anchors), y, f'stride {stride}', va='center')
    axes.set_xscale('log', base=2)
    axes.xaxis.set_major_formatter('{x:g}')
    axes.set(xlabel='sqrt(width x height), pixels of the network input', ylabel='objects', xlim=(low, 1.5 * high))


def pick_confusions(evaluation: Evaluation, most: int = 20) -> tuple[list[str], np.ndarray]:
    """Returns names and counts of the confusion matrix, with the classes beyond the `most` with most errors as one.

    The last name is 'background'.
    """
    matrix, names = evaluation.confusion, [result.name for result in evaluation.classes]
    if len(names) <= most:
        return [*names, 'background'], matrix
    errors = (matrix.sum(axis=0) + matrix.sum(axis=1) - 2 * matrix.diagonal())[:-1]
    chosen = np.sort(np.argsort(-errors, kind='stable')[:most])
    place = np.full(len(names) + 1, most)  # of each row and column among the new ones
    place[chosen], place[-1] = np.arange(most), most + 1
    counts = np.zeros((most + 2, most + 2), matrix.dtype)
    np.add.at(counts, (place[:, None], place[None]), matrix)
    return [*(names[i] for i in chosen), 'other classes', 'background'], counts
