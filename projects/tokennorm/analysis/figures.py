"""Figures of the DTN paper, drawn from a trained backbone and images.

Each function of `FIGURES` takes the arguments of `tokennorm analyze` and returns a figure. Two models are drawn side by
side with equal scales.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from mmengine.config import Config
from torch import Tensor

from tokennorm.analysis import metrics
from tokennorm.analysis.loading import Image, open_backbone, open_config, open_images, prepare
from tokennorm.analysis.probe import Layer, look
from tokennorm.norms import DTN
from tokennorm.report.lambdas import dtn_layers, ratios_of, read_ratio_curves
from tokennorm.report.scalars import Curve

LEAST_SPAN = 0.01  # of an axis of lambda
MAX_HEADS = 9  # feature maps in a row
MOST_LAYERS = 8  # rows of a figure
MIXED = dict(mean='mean', var='variance')  # the statistics that lambda mixes, and their names in figures
_BAND = 0.2  # opacity of a band
_MOST_POINTS = 1000  # of a scatter plot


@dataclass
class Model:
    """A backbone with its label in figures."""

    label: str
    cfg: Config
    checkpoint: str | None
    backbone: torch.nn.Module

    @classmethod
    def open(cls, config: str, checkpoint: str | None, options: dict | None) -> 'Model':
        """The backbone of a config, with the weights of a checkpoint, or initialized at random."""
        cfg = open_config(Path(config), options)
        start = '' if checkpoint else ', random initialization'
        return cls(Path(config).stem + start, cfg, checkpoint, open_backbone(cfg, checkpoint))

    def look(self, image: Image) -> list[Layer]:
        """Traces of all blocks for an image, first block to last."""
        return look(self.backbone, prepare(self.cfg, image))

    def dtn_layers(self) -> dict[str, DTN]:
        """The DTN layers by name."""
        layers = dtn_layers(self.backbone)
        if not layers:
            raise ValueError(f'{self.label} has no DTN layer')
        return layers


def open_models(args: argparse.Namespace) -> tuple[list[Model], list[Image]]:
    """Opens the model, the model to compare it with, and the images, which the first config's pipeline reads."""
    pairs = [(args.config, args.checkpoint)]
    if args.against:
        pairs.append((args.against[0], args.against[1] if len(args.against) > 1 else None))
    models = [Model.open(*pair, args.cfg_options) for pair in pairs]
    if len(models) > 1 and models[0].label == models[1].label:
        for model in models:
            model.label = f'{model.label}, {Path(model.checkpoint).stem}' if model.checkpoint else model.label
        models[1].label += ' (2)' if models[0].label == models[1].label else ''
    return models, open_images(models[0].cfg, args.images, args.num_images)


def look_at_all(args: argparse.Namespace) -> dict[str, list[tuple[Layer, ...]]]:
    """Returns the blocks of each model by its label; a block is its traces for all images."""
    models, images = open_models(args)
    return {model.label: list(zip(*map(model.look, images), strict=True)) for model in models}


def choose(items: list, wanted: list[int] | None, most: int) -> list:
    """The items of the wanted numbers; without any, `most` items, evenly spaced."""
    if wanted is None:
        return [items[i] for i in evenly(len(items), most)]
    if not all(0 <= i < len(items) for i in wanted):
        raise ValueError(f'--layers {" ".join(map(str, wanted))}: must be between 0 and {len(items) - 1}')
    return [items[i] for i in wanted]


def evenly(count: int, most: int) -> list[int]:
    """Returns at most `most` of the numbers below `count`, evenly spaced, including the first and the last."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))})


# ---- what several figures share ----


def short_name(name: str) -> str:
    """'backbone.stages.0.blocks.1.norm1' -> '0.1.norm1'."""
    return '.'.join(part for part in name.split('.') if part not in ('backbone', 'stages', 'blocks'))


def axes_of_maps(panel: SubFigure, title: str, names: Sequence[str], columns: int) -> np.ndarray:
    """Returns axes for feature maps, (rows, columns), in a panel with a title and a name for each row."""
    panel.suptitle(title, fontsize=9)
    axes = panel.subplots(len(names), columns, squeeze=False)
    for ax in axes.flat:
        ax.axis('off')
    for ax, name in zip(axes[:, 0], names, strict=True):
        ax.text(-0.08, 0.5, short_name(name), transform=ax.transAxes, ha='right', va='center', fontsize=7)
    return axes


def axes_of_blocks(
    models: Mapping[str, Sequence[tuple[Layer, ...]]], ylabels: Sequence[str]
) -> tuple[Figure, np.ndarray]:
    """Returns a figure and its axes, (ylabels, models), over the blocks of each model, with their strides above."""
    width = max(4.5, *(1.4 + 0.32 * len(blocks) for blocks in models.values()))
    figure = Figure(figsize=(width * len(models) + 0.5, 3.6 * len(ylabels) + 0.4), layout='constrained')
    axes = figure.subplots(len(ylabels), len(models), squeeze=False, sharey='row', sharex='col')
    for column, (label, blocks) in zip(axes.T, models.items(), strict=True):
        strides = [layers[0].stride for layers in blocks]
        bounds = [0, *(i for i in range(1, len(blocks)) if strides[i] != strides[i - 1]), len(blocks)]
        for ax, ylabel in zip(column, ylabels, strict=True):
            ax.set_ylabel(ylabel)
            ax.tick_params(labelleft=True)
            ax.grid(axis='y', alpha=0.3)
            for bound in bounds[1:-1]:
                ax.axvline(bound - 0.5, color='0.7', linewidth=0.8)
        top, bottom = column[0], column[-1]
        for start, end in pairwise(bounds) if len(bounds) > 2 else ():
            place, text = (start + end - 1) / 2, f'stride\n{strides[start]}'
            top.text(place, 1.01, text, transform=top.get_xaxis_transform(), ha='center', va='bottom', fontsize=7)
        top.set_title(label, fontsize=10, pad=24 if len(bounds) > 2 else 6)  # above the strides
        bottom.set_xlabel('block')
        names = [short_name(layers[0].name) for layers in blocks]
        bottom.set_xticks(range(len(blocks)), names, rotation=90, fontsize=7)
        bottom.set_xlim(-0.7, len(blocks) - 0.3)
    return figure, axes


# ---- the figures ----


def magnitude(args: argparse.Namespace) -> Figure:
    """Draws token magnitudes after the first norm of blocks, per head (Fig. 1), of the first image.

    They are drawn relative to their mean over the tokens; the number next to a head is their standard deviation / mean.
    """
    models, images = open_models(args)
    most = MAX_HEADS // len(models)
    layers = {model.label: choose(model.look(images[0]), args.layers, MOST_LAYERS) for model in models}
    maps = {
        label: [metrics.token_magnitudes(layer.after, layer.num_heads) for layer in chosen]
        for label, chosen in layers.items()
    }
    relative = {label: [m / m.mean(dim=(1, 2), keepdim=True) for m in found] for label, found in maps.items()}
    low, high = np.percentile(torch.cat([m.flatten() for found in relative.values() for m in found]), [0.5, 99.5])
    columns = {label: max(min(len(m), most) for m in found) for label, found in maps.items()}
    pixels = images[0].pixels
    cell_height, cell_width = 1.25, 1.05 * pixels.shape[1] / pixels.shape[0] + 0.1
    widths = [2.6, *(max(1.0 + cell_width * count, 3.6) for count in columns.values())]
    height = max(1.2 + cell_height * max(map(len, maps.values())), 4.0)
    figure = Figure(figsize=(sum(widths), height), layout='constrained')
    figure.suptitle(
        'Magnitudes of tokens after the first norm of a block;\nnext to the head: standard deviation / mean', fontsize=9
    )
    left, *panels = figure.subfigures(1, len(widths), width_ratios=widths)
    picture = left.subplots()
    picture.imshow(pixels)
    picture.set_title('image', fontsize=9)
    picture.axis('off')
    for panel, (label, chosen) in zip(panels, layers.items(), strict=True):
        names = [f'{layer.name}\n{type(layer.norm).__name__}' for layer in chosen]
        axes = axes_of_maps(panel, label, names, columns[label])
        for row, found, values in zip(axes, maps[label], relative[label], strict=True):
            spreads = metrics.relative_spread(found)
            for ax, head in zip(row, evenly(len(found), most), strict=False):
                drawn = ax.imshow(values[head], vmin=low, vmax=high, cmap='viridis', interpolation='nearest')
                ax.set_title(f'head {head + 1}: {spreads[head]:.2f}', fontsize=7, pad=2)
    bar = left.colorbar(drawn, ax=picture, location='bottom', shrink=0.9)
    bar.set_label('norm of a token /\nmean of its head', fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def attention_distance(args: argparse.Namespace) -> Figure:
    """Draws and prints the mean attention distance per head and block (Fig. 2), and that of uniform attention."""
    models = look_at_all(args)
    strides = sorted({layers[0].stride for blocks in models.values() for layers in blocks})
    units = ('tokens', 'pixels') if len(strides) > 1 else (f'tokens (of {strides[0]} pixels)',)
    figure, axes = axes_of_blocks(models, [f'mean attention distance\nin {unit}' for unit in units])
    for column, (label, blocks) in enumerate(models.items()):
        if blocks[0][0].attention is None:
            raise ValueError(f"{label}: attention-distance supports TokenNorm's PVT, PVTv2, Swin and ViT only")
        print(f'{label}: mean attention distance of each head, in tokens, on {len(blocks[0])} images')
        for i, layers in enumerate(blocks):
            name, stride = layers[0].name, layers[0].stride
            distances, uniform = (
                torch.stack([layer.attention.mean_distances(uniform) for layer in layers]).mean(dim=0)
                for uniform in (False, True)
            )
            heads = ' '.join(f'{distance:.2f}' for distance in distances.tolist())
            print(f'  {name} (stride {stride}, uniform {uniform.mean():.2f}): {heads}')
            for ax, factor in zip(axes[:, column], (1, stride), strict=False):
                (expected,) = ax.plot([i - 0.3, i + 0.3], [uniform.mean() * factor] * 2, color='0.6', linewidth=2)
                places = [i] * len(distances)
                drawn = ax.scatter(places, distances * factor, s=18, color=f'C{column}', alpha=0.7, zorder=3)
    for ax in axes[:, 0]:
        ax.set_ylim(0, 1.08 * ax.get_ylim()[1])
    figure.legend(
        [drawn, expected], ['a head', 'if attention were uniform'], fontsize=8, ncols=2, loc='outside lower center'
    )
    return figure


def variation(args: argparse.Namespace) -> Figure:
    """Draws how far the mean that a block's first norm subtracts is from the tokens (Fig. 3b), in float64.

    Lines are the medians, bands the quartiles of the tokens of all images.
    """
    models = look_at_all(args)
    kinds = {"the model's": 'o-', "LayerNorm's": 's--', "instance norm's": '^:'}
    figure, axes = axes_of_blocks(models, ('variation coefficient\nnorm of |(x - mu) / x|', '|x - mu| / |x|'))
    for column, blocks in zip(axes.T, models.values(), strict=True):
        quartiles = np.stack([np.percentile(distances_of_means(layers), [25, 50, 75], axis=-1) for layers in blocks])
        for i, (kind, style) in enumerate(kinds.items()):
            for j, ax in enumerate(column):
                low, median, high = quartiles[:, :, i, j].T
                (line,) = ax.plot(median, style, markersize=4, label=f'mu: {kind}')
                ax.fill_between(range(len(blocks)), low, high, color=line.get_color(), alpha=_BAND)
        column[0].set_yscale('log')
    figure.suptitle('Distance of the mean mu from the tokens x:\nmedian and quartiles of the tokens', fontsize=10)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, ncols=len(kinds), loc='outside lower center')
    return figure


def distances_of_means(layers: Sequence[Layer]) -> Tensor:
    """Returns the two distances of each token from three means: the norm's own, LayerNorm's and instance norm's.

    The distances are the coefficient of Fig. 3b, and the distance relative to the token's norm; (3, 2, tokens of all
    images).
    """
    distances = []
    for layer in layers:
        x = layer.before.double()
        means = (metrics.mean_of(layer.norm, x), x.mean(dim=-1, keepdim=True), x.mean(dim=(0, 1)))
        both = [(metrics.variation_coefficient(x, mean), metrics.relative_distance(x, mean)) for mean in means]
        distances.append(torch.stack([torch.stack(pair).flatten(1) for pair in both]))
    return torch.cat(distances, dim=-1)


def lambda_of(args: argparse.Namespace) -> Figure:
    """Draws lambda of mean and variance: over a training run, from its work directory, or of a checkpoint (Fig. 4)."""
    source = Path(args.config)
    if source.is_dir():
        curves = read_ratio_curves(source)
        if not curves:
            raise ValueError(
                f'{source} has no lambda in */vis_data/scalars.json: train with DTN, by `tokennorm train` or with '
                "custom_hooks of dict(type='tokennorm.LambdaHook')"
            )
        return lambda_curves(source.resolve().name, curves)
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    layers = {name: ratios_of(norm) for name, norm in model.dtn_layers().items()}
    figure = Figure(figsize=(max(7.0, 1.5 + 0.35 * len(layers)), 5), layout='constrained')
    axes = figure.subplots(2, sharex=True, sharey=True)
    for ax, (kind, title) in zip(axes, MIXED.items(), strict=True):
        for i, ratios in enumerate(layers.values()):
            heads = ratios.get(kind, [])
            ax.scatter([i] * len(heads), heads, s=18, alpha=0.7, zorder=3, color='C0')
        ax.axhline(0.5, color='0.6', linewidth=1, linestyle='--')
        ax.set_ylabel(f'lambda of the {title}')
        ax.grid(alpha=0.3)
    axes[1].set_xticks(range(len(layers)), [short_name(name) for name in layers], rotation=90, fontsize=7)
    figure.suptitle(f'{model.label}: every head (1: within tokens, 0: across tokens)', fontsize=10)
    return figure


def lambda_curves(label: str, curves: Mapping[str, Curve]) -> Figure:
    """Draws lambda against iterations: mean and range of the heads of each layer."""
    layers = list(dict.fromkeys(name.rsplit('.', 2)[0] for name in curves))
    colors = colormaps['turbo'](np.linspace(0.05, 0.95, len(layers)))
    figure = Figure(figsize=(11, max(4.2, 1.2 + 0.19 * len(layers))), layout='constrained')
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (kind, title) in zip(axes, MIXED.items(), strict=True):
        for layer, color in zip(layers, colors, strict=True):
            if f'{layer}.{kind}.mean' in curves:
                mean, low, high = (curves[f'{layer}.{kind}.{which}'] for which in ('mean', 'min', 'max'))
                style = '--' if layer.endswith('norm2') else '-'
                ax.plot(list(mean), list(mean.values()), style, color=color, label=short_name(layer), linewidth=1.2)
                band = [low[step] for step in mean], [high[step] for step in mean]
                ax.fill_between(list(mean), *band, color=color, alpha=0.1, linewidth=0)
        ax.set_title(f'lambda of the {title}', fontsize=10)
        ax.set_xlabel('iteration')
        ax.grid(alpha=0.3)
    low, high = axes[0].get_ylim()
    if high - low < LEAST_SPAN:  # rounding would look like a curve
        axes[0].set_ylim((low + high - LEAST_SPAN) / 2, (low + high + LEAST_SPAN) / 2)
    axes[0].set_ylabel('lambda (1: within tokens, 0: across tokens)')
    figure.suptitle(f'{label}: mean and range of the heads', fontsize=11)
    figure.legend(*axes[1].get_legend_handles_labels(), loc='outside right upper', fontsize=7)
    return figure


def positions(args: argparse.Namespace) -> Figure:
    """Draws the row of P of one token per head; lighter is larger.

    As initialized and in the checkpoint (Fig. 8); without a checkpoint as initialized and from a truncated normal
    distribution with standard deviation 0.02 (Fig. 7). The token has a yellow box, the largest weights have red ones.
    """
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    layers = model.dtn_layers()
    if other := [type(layer).__name__ for layer in layers.values() if type(layer).forward is not DTN.forward]:
        raise ValueError(f'{model.label} has {other[0]}, whose P is not that of Eq. 6, which this figure draws')
    names = choose(list(layers), args.layers, MOST_LAYERS)
    initial = dtn_layers(open_backbone(model.cfg, None))
    later, compared = 'after training', [layers[name].position for name in names]
    if not args.checkpoint:
        later = 'before training, truncated normal'
        compared = [torch.nn.init.trunc_normal_(torch.empty_like(position), std=0.02) for position in compared]
    states = {'before training': [initial[name].position for name in names], later: compared}
    titles = [f'{name}\nwindows of {layers[name].pool}' if layers[name].pool > 1 else name for name in names]
    columns = min(max(map(len, compared)), MAX_HEADS)
    figure = Figure(figsize=(max(2.4 + 2 * columns * 1.15, 6.0), 0.8 + 1.28 * len(names)), layout='constrained')
    figure.suptitle(
        f'{model.label}\n'
        'rows of P: yellow the token, red the largest weight, which stands above; each map has its own scale',
        fontsize=9,
    )
    for panel, (state, found) in zip(figure.subfigures(1, 2), states.items(), strict=True):
        for row, position in zip(axes_of_maps(panel, state, titles, columns), found, strict=True):
            for ax, head in zip(row, evenly(len(position), MAX_HEADS), strict=False):
                draw_row_of_p(ax, head, metrics.row_of_p(position)[head].numpy())
    return figure


def draw_row_of_p(ax: Axes, head: int, weights: np.ndarray) -> None:
    """Draws the weights (H, W) of `metrics.TOKEN`."""
    ax.imshow(weights, cmap='gray', vmin=0, interpolation='nearest')
    largest = np.argwhere(weights > weights.max() * (1 - 1e-9))  # there may be ties
    for (y, x), color, inset in (*((place, 'red', 0.0) for place in largest), (metrics.TOKEN, 'yellow', 0.2)):
        side = 1 - 2 * inset
        ax.add_patch(Rectangle((x - 0.5 + inset, y - 0.5 + inset), side, side, fill=False, ec=color, lw=1))
    ax.set_title(f'head {head + 1}: {weights.max():.3f}', fontsize=7, pad=2)


def directions(args: argparse.Namespace) -> Figure:
    """Draws tokens before and after a block's first norm, in their first two principal components (Fig. 9)."""
    models, images = open_models(args)
    rows = []
    for model in models:
        layers = [choose(model.look(image), args.layers, 1)[0] for image in images]
        norm = f'{layers[0].name}: {type(layers[0].norm).__name__}'
        rows.append((f'{model.label}\nbefore {norm}', [layer.before.flatten(0, 1) for layer in layers]))
        rows.append((f'{model.label}\nafter {norm}', [layer.after.flatten(0, 1) for layer in layers]))
    figure = Figure(figsize=(2.4 * len(images) + 1.2, 1.5 + 2.45 * len(rows)), layout='constrained')
    axes = figure.subplots(1 + len(rows), len(images), squeeze=False, height_ratios=[0.5] + [1] * len(rows))
    for ax, image in zip(axes[0], images, strict=True):
        ax.imshow(image.pixels)
        ax.axis('off')
    for row, (label, cells) in zip(axes[1:], rows, strict=True):
        components = [metrics.principal_components(tokens) for tokens in cells]
        reach = 1.05 * max(points.abs().max().item() for points, _ in components)
        for ax, tokens, (points, shares) in zip(row, cells, components, strict=True):
            some, norms = evenly(len(tokens), _MOST_POINTS), tokens.norm(dim=-1)
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
            cosine = metrics.mean_cosine(tokens)
            ax.set_title(
                f'{shares[0]:.0%} + {shares[1]:.0%} of the variance\nmean cosine {cosine:.2f}', fontsize=7, pad=3
            )
            ax.tick_params(labelsize=6)
        row[0].set_ylabel(label, fontsize=8)
    bar = figure.colorbar(drawn, ax=axes[1:], location='right', shrink=0.6, aspect=40, extend='both')
    bar.set_label('norm of a token / mean of its image', fontsize=8)
    bar.ax.tick_params(labelsize=7)
    figure.supxlabel('first principal component (second: upwards)', fontsize=9)
    return figure


def patch_scales(args: argparse.Namespace) -> Figure:
    """Draws the learned scales of Dual PatchNorm's first norm, arranged as a patch: mean, and each channel."""
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    scales = metrics.patch_scales(model.backbone)
    shown = [('mean', scales.mean(-1)), *((f'channel {i}', channel) for i, channel in enumerate(scales.unbind(-1)))]
    figure = Figure(figsize=(2.2 * len(shown) + 1, 3), layout='constrained')
    figure.suptitle(f'{model.label}: scales of the norm before the projection', fontsize=9)
    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    for ax, (name, values) in zip(axes, shown, strict=True):
        picture = ax.imshow(values.numpy(), vmin=float(scales.min()), vmax=float(scales.max()))
        ax.set_title(name, fontsize=9)
        ax.set(xticks=[], yticks=[])
    figure.colorbar(picture, ax=axes)
    return figure


FIGURES: dict[str, Callable[[argparse.Namespace], Figure]] = {
    'magnitude': magnitude,
    'attention-distance': attention_distance,
    'variation': variation,
    'lambda': lambda_of,
    'positions': positions,
    'directions': directions,
    'patch-scales': patch_scales,
}
