"""Draws the figures of the report as SVG text."""

import io
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tokennorm.report.evaluation import TIDE, Evaluation
from tokennorm.report.scalars import Curve

COLORS = ('#2563eb', '#ea580c', '#059669', '#9333ea', '#dc2626', '#0891b2', '#ca8a04', '#64748b')
BLUES = LinearSegmentedColormap.from_list('depth', ('#bfdbfe', '#1e3a8a'))
ORANGES = LinearSegmentedColormap.from_list('depth', ('#fed7aa', '#7c2d12'))
SIZE = (4.6, 3.0)  # inches; one column of the page at its natural size
STYLE = {
    'svg.fonttype': 'none',
    'svg.hashsalt': 'tokennorm',
    'font.size': 9.5,
    'axes.edgecolor': '#94a3b8',
    'axes.labelcolor': '#334155',
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.grid': True,
    'axes.axisbelow': True,
    'grid.color': '#e2e8f0',
    'xtick.color': '#475569',
    'ytick.color': '#475569',
    'text.color': '#334155',
    'lines.linewidth': 1.8,
    'legend.frameon': False,
    'legend.fontsize': 8.5,
}
MOST_CURVES = 6


def new_axes(size: tuple[float, float] = SIZE) -> Axes:
    """Returns the axes of a new figure in the report's style."""
    return Figure(figsize=size, layout='constrained').subplots()


def to_svg(axes: Axes) -> str:
    """Returns the figure of some axes as an SVG element that scales with its width."""
    buffer = io.StringIO()
    axes.figure.savefig(buffer, format='svg', transparent=True, metadata={'Date': None, 'Creator': None})
    svg = buffer.getvalue()
    width, height = (72 * side for side in axes.figure.get_size_inches())
    content = svg[svg.index('>', svg.index('<svg')) + 1 :]
    return f'<svg viewBox="0 0 {width:g} {height:g}" xmlns:xlink="http://www.w3.org/1999/xlink">{content}'


def draw_curves(curves: Mapping[str, Curve], xlabel: str, ylabel: str, zero: bool = False, dots: bool = False) -> str:
    """Draws scalars against their steps."""
    with matplotlib.rc_context(STYLE):
        axes = new_axes()
        for i, (label, curve) in enumerate(curves.items()):
            marker = dict(marker='o', markersize=3.5) if dots else {}
            axes.plot(list(curve), list(curve.values()), color=COLORS[i % len(COLORS)], label=label, **marker)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.xaxis.set_major_locator(MaxNLocator(nbins='auto', integer=True, steps=[1, 2, 5, 10]))
        if zero:
            axes.set_ylim(0, None)
        if len(curves) > 1:
            axes.legend()
        return to_svg(axes)


def draw_lambdas(lambdas: Mapping[str, Curve]) -> str:
    """Draws the mean lambda of each DTN layer over training, light lines first; blue: mean, orange: variance."""
    with matplotlib.rc_context(STYLE):
        axes = new_axes()
        for kind, colors, label in (('mean', BLUES, 'of the mean'), ('var', ORANGES, 'of the variance')):
            found = [curve for name, curve in lambdas.items() if name.endswith(f'.{kind}.mean')]
            for i, curve in enumerate(found):
                depth = i / max(len(found) - 1, 1)
                last = label if i == len(found) - 1 else None
                axes.plot(list(curve), list(curve.values()), color=colors(depth), linewidth=1.2, label=last)
        axes.set(xlabel='iteration', ylabel='lambda, mean over heads', ylim=(-0.02, 1.02))
        axes.legend()
        return to_svg(axes)


def draw_precision_recall(evaluation: Evaluation) -> str:
    """Draws precision against recall at IoU 0.5: the mean, and of many classes those with the most objects."""
    recalls = np.linspace(0, 1, evaluation.precisions.shape[1])
    pairs = zip(evaluation.classes, evaluation.precisions, strict=True)
    curves = [(result, precision) for result, precision in pairs if result.ap50 is not None]
    mean = np.mean([precision for _, precision in curves], axis=0) if curves else None
    curves = sorted(curves, key=lambda curve: -curve[0].objects)[:MOST_CURVES]
    with matplotlib.rc_context(STYLE):
        axes = new_axes((4.6, 3.6))
        for color, (result, precision) in zip(COLORS, curves, strict=False):
            axes.plot(recalls, precision, color=color, label=f'{result.name} ({100 * result.ap50:.1f})', linewidth=1.4)
        if len(curves) > 1:
            label = f'mean of all classes ({100 * mean.mean():.1f})'
            axes.plot(recalls, mean, color='#0f172a', label=label, linewidth=2.4)
        axes.set(xlabel='recall', ylabel='precision', xlim=(0, 1.01), ylim=(0, 1.02))
        if curves:
            axes.legend(loc='best')
        return to_svg(axes)


def draw_thresholds(evaluation: Evaluation) -> str:
    """Draws precision, recall and F1 of all classes together against the score threshold."""
    with matplotlib.rc_context(STYLE):
        axes = new_axes((4.6, 3.6))
        score, *columns = evaluation.sweep.T
        for label, color, values in zip(('precision', 'recall', 'F1'), COLORS, columns, strict=False):
            axes.plot(score, values, color=color, label=label)
        if evaluation.best is not None:
            axes.axvline(evaluation.threshold, color='#0f172a', linewidth=1, linestyle=(0, (4, 3)))
        axes.set(xlabel='score threshold', xlim=(0, 1), ylim=(0, 1.02))
        axes.legend()
        return to_svg(axes)


def draw_tide(results: Mapping[str, Mapping[str, float]]) -> str:
    """Draws the AP50 that each of TIDE's error types costs, a bar per evaluation."""
    with matplotlib.rc_context(STYLE):
        axes = new_axes((4.6, 2.7 if len(results) == 1 else 3.3))
        height = 0.8 / len(results)
        rows = np.arange(len(TIDE))
        for i, (label, lost) in enumerate(results.items()):
            values = [100 * lost[key] for key in TIDE]
            bars = axes.barh(rows + i * height, values, height * 0.9, color=COLORS[i], label=label)
            axes.bar_label(bars, fmt='%.1f', padding=3, fontsize=8)
        axes.set_yticks(rows + 0.4 - height / 2, list(TIDE.values()))
        axes.invert_yaxis()
        axes.grid(axis='y', visible=False)
        axes.set(xlabel='AP50 lost, in points', xlim=(0, None))
        axes.margins(x=0.12)
        if len(results) > 1:
            axes.legend()
        return to_svg(axes)


def draw_sizes(object_sizes: np.ndarray, anchor_sizes: Mapping[int, Sequence[float]]) -> str:
    """Draws a histogram of object sizes, with the range of anchor sizes of each feature level above it."""
    with matplotlib.rc_context(STYLE):
        axes = new_axes()
        sizes = np.maximum(object_sizes, 1)
        spans = [(min(s), max(s)) for s in anchor_sizes.values()]
        low = min([*sizes, *(span[0] for span in spans)], default=1) / 1.2
        high = max([*sizes, *(span[1] for span in spans)], default=100) * 1.2
        counts, *_ = axes.hist(sizes, bins=np.geomspace(low, high, 40), color='#93c5fd', edgecolor='white')
        top = max(counts.max(), 1)
        for i, (stride, span) in enumerate(zip(anchor_sizes, spans, strict=True)):
            y = top * (1.08 + 0.07 * i)
            axes.plot(span, (y, y), color=COLORS[1], linewidth=3, solid_capstyle='butt')
            place = dict(xytext=(4, 0), textcoords='offset points', va='center', fontsize=7.5)
            axes.annotate(f'stride {stride}', (span[1], y), **place)
        axes.set(xscale='log', xlabel='sqrt(width x height), pixels of the network input', ylabel='objects')
        axes.set_xlim(low, high * (1.5 if spans else 1))
        ticks = [t for t in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048) if low <= t <= high]
        axes.set_xticks(ticks, [str(t) for t in ticks])
        axes.set_xticks([], minor=True)
        return to_svg(axes)


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
