"""Plots of `tokennorm analyze`. Each function takes measured values and returns a figure.

A model is a label and its values. Two models are drawn side by side with equal scales.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

LEAST_SPAN = 0.01  # of an axis of lambda
MAX_HEADS = 9  # feature maps in a row
_BAND = 0.2  # opacity of a band
_MOST_POINTS = 1000  # of a scatter plot
_PAD = 24  # of a title above the labels of strides, in points


def evenly(count: int, most: int) -> list[int]:
    """Returns at most `most` of the numbers below `count`, evenly spaced, including the first and the last."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))})


def draw_magnitudes(
    pixels: np.ndarray, models: Mapping[str, Sequence[tuple[str, Tensor]]], spreads: Mapping[str, Sequence[Tensor]]
) -> Figure:
    """Draws Fig. 1: token magnitudes relative to their mean, per layer (row) and head (column).

    Args:
        pixels: The image, (H, W, 3) uint8.
        models: For each model its layers: a name, and magnitudes (N, H', W').
        spreads: For each model and layer the spread of each map, (N,), written above it.
    """
    relative = {
        label: [(name, maps / maps.mean(dim=(1, 2), keepdim=True)) for name, maps in layers]
        for label, layers in models.items()
    }
    values = np.concatenate([maps.flatten().numpy() for layers in relative.values() for _, maps in layers])
    low, high = np.percentile(values, [0.5, 99.5])
    most = MAX_HEADS // len(models)
    heads = {label: [evenly(len(maps), most) for _, maps in layers] for label, layers in relative.items()}
    columns = {label: max(map(len, shown)) for label, shown in heads.items()}
    rows = max(map(len, relative.values()))
    cell_height, cell_width = 1.25, 1.05 * pixels.shape[1] / pixels.shape[0] + 0.1
    widths = [2.6, *(max(1.0 + cell_width * count, 3.6) for count in columns.values())]
    figure = Figure(figsize=(sum(widths), max(1.2 + cell_height * rows, 4.0)), layout='constrained')
    figure.suptitle(
        'Magnitudes of tokens after the first norm of a block;\nnext to the head: standard deviation / mean', fontsize=9
    )
    left, *panels = figure.subfigures(1, len(widths), width_ratios=widths)
    picture = left.subplots()
    picture.imshow(pixels)
    picture.set_title('image', fontsize=9)
    picture.axis('off')
    for panel, (label, layers) in zip(panels, relative.items(), strict=True):
        panel.suptitle(label, fontsize=9)
        axes = panel.subplots(rows, columns[label], squeeze=False)
        for ax in axes.flat:
            ax.axis('off')
        for row, (name, maps) in enumerate(layers):
            for ax, head in zip(axes[row], heads[label][row], strict=False):
                drawn = ax.imshow(maps[head], vmin=low, vmax=high, cmap='viridis', interpolation='nearest')
                ax.set_title(f'head {head + 1}: {spreads[label][row][head]:.2f}', fontsize=7, pad=2)
            _name_row(axes[row, 0], name)
    bar = left.colorbar(drawn, ax=picture, location='bottom', shrink=0.9)
    bar.set_label('norm of a token /\nmean of its head', fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def draw_distances(models: Mapping[str, Sequence[tuple[str, int, Tensor, Tensor]]]) -> Figure:
    """Draws Fig. 2: the mean attention distance per head and layer.

    Args:
        models: For each model its layers: a name, the side of a token in pixels, the distances of the heads in tokens,
            (N,), and those that uniform attention would have.
    """
    strides = {stride for layers in models.values() for _, stride, _, _ in layers}
    units = ('tokens', 'pixels') if len(strides) > 1 else ('tokens',)
    width = max(4.5, *(1.2 + 0.32 * len(layers) for layers in models.values()))
    figure = Figure(figsize=(width * len(models) + 0.5, 3.6 * len(units) + 0.4), layout='constrained')
    axes = figure.subplots(len(units), len(models), squeeze=False, sharey='row', sharex='col')
    for column, (label, layers) in enumerate(models.items()):
        for row, unit in enumerate(units):
            ax = axes[row, column]
            for i, (_, stride, distances, uniform) in enumerate(layers):
                factor = stride if unit == 'pixels' else 1
                (expected,) = ax.plot([i - 0.3, i + 0.3], [uniform.mean() * factor] * 2, color='0.6', linewidth=2)
                heads = ax.scatter(
                    [i] * len(distances), distances * factor, s=18, color=f'C{column}', alpha=0.7, zorder=3
                )
            one = f' (of {stride} pixels)' if len(strides) == 1 else ''
            ax.set_ylabel(f'mean attention distance\nin {unit}{one}')
            ax.tick_params(labelleft=True)
            _mark_layers(ax, [name for name, *_ in layers], [stride for _, stride, *_ in layers], label=row == 0)
        axes[0, column].set_title(label, fontsize=10, pad=_PAD if len(strides) > 1 else 6)
        axes[-1, column].set_xlabel('block')
    for ax in axes[:, 0]:
        ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
    figure.legend(
        [heads, expected], ['a head', 'if attention were uniform'], fontsize=8, ncols=2, loc='outside lower center'
    )
    return figure


def draw_variation(models: Mapping[str, Sequence[tuple[str, int, Mapping[str, tuple[Tensor, Tensor]]]]]) -> Figure:
    """Draws Fig. 3b: the distance of the normalizers' means from the tokens, per layer.

    Args:
        models: For each model its layers: a name, the side of a token in pixels, and for each kind of mean two measures
            of every token, (T,) each.
    """
    titles = ('variation coefficient\nnorm of |(x - mu) / x|', '|x - mu| / |x|')
    width = max(4.5, *(1.4 + 0.32 * len(layers) for layers in models.values()))
    figure = Figure(figsize=(width * len(models) + 0.5, 7.2), layout='constrained')
    axes = figure.subplots(2, len(models), squeeze=False, sharey='row', sharex='col')
    for column, (label, layers) in enumerate(models.items()):
        names, strides = [name for name, *_ in layers], [stride for _, stride, _ in layers]
        for row, ax in enumerate(axes[:, column]):
            for kind, style in zip(layers[0][2], ('o-', 's--', '^:'), strict=True):
                quartiles = np.array([np.percentile(means[kind][row], [25, 50, 75]) for *_, means in layers])
                (line,) = ax.plot(quartiles[:, 1], style, markersize=4, label=kind)
                ax.fill_between(
                    range(len(layers)), quartiles[:, 0], quartiles[:, 2], color=line.get_color(), alpha=_BAND
                )
            if row == 0:
                ax.set_yscale('log')
            ax.set_ylabel(titles[row])
            ax.tick_params(labelleft=True)
            _mark_layers(ax, names, strides, label=row == 0)
        axes[0, column].set_title(label, fontsize=10, pad=_PAD if len(set(strides)) > 1 else 6)
        axes[-1, column].set_xlabel('block')
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.suptitle('Distance of the mean mu from the tokens x:\nmedian and quartiles of the tokens', fontsize=10)
    figure.legend(
        handles, [f'mu: {label}' for label in labels], fontsize=8, ncols=len(labels), loc='outside lower center'
    )
    return figure


def draw_ratio_curves(label: str, curves: Mapping[str, Mapping[int, float]]) -> Figure:
    """Draws Fig. 4: lambda against iterations, mean and range of the heads of each layer.

    Args:
        label: Name of the training run.
        curves: What `read_ratio_curves` returns.
    """
    layers = list(dict.fromkeys(name.rsplit('.', 2)[0] for name in curves))
    figure = Figure(figsize=(11, max(4.2, 1.2 + 0.19 * len(layers))), layout='constrained')
    axes = figure.subplots(1, 2, sharey=True)
    colors = _colors(len(layers))
    for ax, kind, title in zip(axes, ('mean', 'var'), ('mean', 'variance'), strict=True):
        for layer, color in zip(layers, colors, strict=True):
            if f'{layer}.{kind}.mean' not in curves:
                continue
            steps, means = zip(*curves[f'{layer}.{kind}.mean'].items(), strict=True)
            low, high = ([curves[f'{layer}.{kind}.{which}'][step] for step in steps] for which in ('min', 'max'))
            style = '--' if layer.endswith('norm2') else '-'
            ax.plot(steps, means, style, color=color, label=_short(layer), linewidth=1.2)
            ax.fill_between(steps, low, high, color=color, alpha=0.1, linewidth=0)
        ax.set_title(f'lambda of the {title}', fontsize=10)
        ax.set_xlabel('iteration')
        ax.grid(alpha=0.3)
    low, high = axes[0].get_ylim()
    if high - low < LEAST_SPAN:  # rounding would look like a curve
        axes[0].set_ylim((low + high - LEAST_SPAN) / 2, (low + high + LEAST_SPAN) / 2)
    axes[0].set_ylabel('lambda (1: within tokens, 0: across tokens)')
    figure.suptitle(f'{label}: mean and range of the heads', fontsize=11)
    handles, labels = axes[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside right upper', fontsize=7)
    return figure


def draw_ratios(label: str, layers: Mapping[str, Mapping[str, Tensor]]) -> Figure:
    """Draws lambda per head of each DTN layer of a checkpoint.

    Args:
        label: Name of the model.
        layers: For each layer lambda of the 'mean' and of the 'var', (N,).
    """
    figure = Figure(figsize=(max(7.0, 1.5 + 0.35 * len(layers)), 5), layout='constrained')
    axes = figure.subplots(2, sharex=True, sharey=True)
    for ax, kind, title in zip(axes, ('mean', 'var'), ('mean', 'variance'), strict=True):
        for i, ratios in enumerate(layers.values()):
            heads = ratios.get(kind, [])
            ax.scatter([i] * len(heads), heads, s=18, alpha=0.7, zorder=3, color='C0')
        ax.axhline(0.5, color='0.6', linewidth=1, linestyle='--')
        ax.set_ylabel(f'lambda of the {title}')
        ax.grid(alpha=0.3)
    axes[1].set_xticks(range(len(layers)), [_short(name) for name in layers], rotation=90, fontsize=7)
    figure.suptitle(f'{label}: every head (1: within tokens, 0: across tokens)', fontsize=10)
    return figure


def draw_positions(
    label: str, layers: Sequence[tuple[str, Tensor, Tensor]], token: tuple[int, int], titles: tuple[str, str]
) -> Figure:
    """Draws Figs. 7 and 8: rows of P in two states, such as before and after training; lighter is larger.

    Args:
        label: Name of the model.
        layers: For each layer its name and each head's row in the two states, (N, H, W).
        token: Row and column of the token whose row it is, in a yellow box; the largest weights have red ones.
        titles: Names of the two states.
    """
    heads = [evenly(len(before), MAX_HEADS) for _, before, _ in layers]
    columns = max(map(len, heads))
    figure = Figure(figsize=(max(2.4 + 2 * columns * 1.15, 6.0), 0.8 + 1.28 * len(layers)), layout='constrained')
    figure.suptitle(
        f'{label}\nrows of P: yellow the token, red the largest weight, which stands above; each map has its own scale',
        fontsize=9,
    )
    for index, (panel, when) in enumerate(zip(figure.subfigures(1, 2), titles, strict=True)):
        panel.suptitle(when, fontsize=10)
        axes = panel.subplots(len(layers), columns, squeeze=False)
        for ax in axes.flat:
            ax.axis('off')
        for row, (name, *rows) in enumerate(layers):
            for ax, head in zip(axes[row], heads[row], strict=False):
                weights = rows[index][head].numpy()
                largest = np.argwhere(weights > weights.max() * (1 - 1e-9))  # there may be ties
                ax.imshow(weights, cmap='gray', vmin=0, interpolation='nearest')
                for (y, x), color, inset in (*((place, 'red', 0.0) for place in largest), (token, 'yellow', 0.2)):
                    side = 1 - 2 * inset
                    box = Rectangle((x - 0.5 + inset, y - 0.5 + inset), side, side, fill=False, ec=color, lw=1)
                    ax.add_patch(box)
                ax.set_title(f'head {head + 1}: {weights.max():.3f}', fontsize=7, pad=2)
            _name_row(axes[row, 0], name)
    return figure


def draw_directions(
    pictures: Sequence[np.ndarray],
    models: Mapping[str, Sequence[tuple[str, Sequence[tuple[Tensor, Tensor, Tensor, float]]]]],
) -> Figure:
    """Draws Fig. 9: tokens in their first two principal components, before and after a norm.

    Args:
        pictures: The images, (H, W, 3) uint8 each.
        models: For each model two rows, before and after: a name, and for each image the coordinates (T, 2), the
            shares of the variance (2,), the norms (T,) and the mean cosine of its tokens.
    """
    rows = [(label, name, cells) for label, pair in models.items() for name, cells in pair]
    figure = Figure(figsize=(2.4 * len(pictures) + 1.2, 1.5 + 2.45 * len(rows)), layout='constrained')
    axes = figure.subplots(1 + len(rows), len(pictures), squeeze=False, height_ratios=[0.5] + [1] * len(rows))
    for ax, pixels in zip(axes[0], pictures, strict=True):
        ax.imshow(pixels)
        ax.axis('off')
    for row, (label, name, cells) in zip(axes[1:], rows, strict=True):
        reach = 1.05 * max(points.abs().max().item() for points, *_ in cells)
        for ax, (points, shares, norms, cosine) in zip(row, cells, strict=True):
            some = evenly(len(points), _MOST_POINTS)
            drawn = ax.scatter(
                *points[some].T,
                c=(norms / norms.mean())[some],
                vmin=0.5,
                vmax=1.5,
                s=6,
                linewidths=0,
                antialiased=False,  # a third of the file's size
            )
            ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect='equal')
            ax.set_title(
                f'{shares[0]:.0%} + {shares[1]:.0%} of the variance\nmean cosine {cosine:.2f}', fontsize=7, pad=3
            )
            ax.tick_params(labelsize=6)
        row[0].set_ylabel(f'{label}\n{name}', fontsize=8)
    bar = figure.colorbar(drawn, ax=axes[1:], location='right', shrink=0.6, aspect=40, extend='both')
    bar.set_label('norm of a token / mean of its image', fontsize=8)
    bar.ax.tick_params(labelsize=7)
    figure.supxlabel('first principal component (second: upwards)', fontsize=9)
    return figure


def draw_patch_scales(label: str, scales: Tensor) -> Figure:
    """Draws the scales (ph, pw, C): their mean over the channels of the image, and each channel, in one range."""
    shown = [('mean', scales.mean(-1)), *((f'channel {i}', channel) for i, channel in enumerate(scales.unbind(-1)))]
    figure = Figure(figsize=(2.2 * len(shown) + 1, 3), layout='constrained')
    figure.suptitle(f'{label}: scales of the norm before the projection', fontsize=9)
    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    for ax, (name, values) in zip(axes, shown, strict=True):
        picture = ax.imshow(values.numpy(), vmin=float(scales.min()), vmax=float(scales.max()))
        ax.set_title(name, fontsize=9)
        ax.set_xticks([])
        ax.set_yticks([])
    figure.colorbar(picture, ax=axes)
    return figure


def _mark_layers(ax: Axes, names: Sequence[str], strides: Sequence[int], label: bool) -> None:
    """Labels the blocks, draws a line at each change of stride, and with `label` writes the strides above."""
    ax.set_xticks(range(len(names)), [_short(name) for name in names], rotation=90, fontsize=7)
    ax.set_xlim(-0.7, len(names) - 0.3)
    ax.grid(axis='y', alpha=0.3)
    if len(set(strides)) == 1:
        return
    starts = [i for i in range(len(strides)) if i == 0 or strides[i] != strides[i - 1]]
    for start, end in zip(starts, [*starts[1:], len(strides)], strict=True):
        if start:
            ax.axvline(start - 0.5, color='0.7', linewidth=0.8)
        if label:
            place, text = (start + end - 1) / 2, f'stride\n{strides[start]}'
            ax.text(place, 1.01, text, transform=ax.get_xaxis_transform(), ha='center', va='bottom', fontsize=7)


def _name_row(ax: Axes, name: str) -> None:
    ax.text(-0.08, 0.5, _short(name), transform=ax.transAxes, ha='right', va='center', fontsize=7)


def _short(name: str) -> str:
    """'backbone.stages.0.blocks.1.norm1' -> '0.1.norm1'."""
    kept = [part for part in name.split('.') if part not in ('backbone', 'stages', 'blocks')]
    return '.'.join(kept)


def _colors(count: int) -> list[tuple[float, ...]]:
    return [colormaps['turbo'](0.05 + 0.9 * i / max(count - 1, 1)) for i in range(count)]
