"""Figures of the DTN paper, drawn from a trained backbone and images.

Each function of `FIGURES` takes the arguments of `run.py` and returns a figure. Two models are drawn side by
side with equal scales.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from mmengine.config import Config
from torch import Tensor

from experiments.dtn_figures import metrics
from experiments.dtn_figures.loading import Image, open_backbone, open_config, open_images, prepare
from experiments.dtn_figures.probe import Layer, look
from experiments.layer_statistics import LAMBDA, dtn_layers, lambdas_of
from tokennorm.base.messages import UserError
from tokennorm.norms import DTN
from tokennorm.report.scalars import Curve, read_scalars

STYLE = {'font.size': 8, 'axes.titlesize': 8, 'figure.titlesize': 9, 'figure.constrained_layout.use': True}
MAX_HEADS = 9  # feature maps in a row
MOST_LAYERS = 8  # rows of a figure
MIXED = dict(mean='mean', var='variance')  # the statistics that lambda mixes, and their names in figures
_MOST_POINTS = 1000  # of a scatter plot


@dataclass
class Model:
    """A backbone with its label in figures."""

    label: str
    cfg: Config
    backbone: torch.nn.Module

    @classmethod
    def open(cls, config: str, checkpoint: str | None = None, options: dict | None = None) -> 'Model':
        """The backbone of a config, with the weights of a checkpoint, or initialized at random."""
        cfg = open_config(Path(config), options)
        weights = '/'.join(Path(checkpoint).parts[-2:]) if checkpoint else 'random initialization'
        return cls(f'{Path(config).stem}, {weights}', cfg, open_backbone(cfg, checkpoint))

    def look(self, image: Image) -> list[Layer]:
        """Traces of all blocks for an image, first block to last."""
        return look(self.backbone, prepare(self.cfg, image))

    def dtn_layers(self) -> dict[str, DTN]:
        """The DTN layers by name."""
        layers = dtn_layers(self.backbone)
        if not layers:
            raise UserError(f'{self.label} has no DTN layer')
        return layers


def open_models(args: argparse.Namespace) -> tuple[list[Model], list[Image]]:
    """Opens the model, the model to compare it with, and the images, which the first config's pipeline reads."""
    models = [Model.open(args.config, args.checkpoint, args.cfg_options)]
    if args.against:
        models.append(Model.open(*args.against, options=args.cfg_options))
    return models, open_images(models[0].cfg, args.images, args.num_images)


def choose(items: list, wanted: list[int] | None, most: int) -> list:
    """The items of the wanted numbers; without any, `most` items, evenly spaced."""
    if wanted is None:
        return [items[i] for i in evenly(len(items), most)]
    if not all(0 <= i < len(items) for i in wanted):
        raise UserError(f'--layers {" ".join(map(str, wanted))}: must be between 0 and {len(items) - 1}')
    return [items[i] for i in wanted]


def evenly(count: int, most: int) -> list[int]:
    """Returns at most `most` of the numbers below `count`, evenly spaced, including the first and the last."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))})


# ---- what several figures share ----


def short_name(name: str) -> str:
    """'backbone.stages.0.blocks.1.norm1' -> '0.1.norm1'."""
    return '.'.join(part for part in name.split('.') if part not in ('backbone', 'stages', 'blocks'))


def figure_of_maps(
    title: str, panels: Sequence[tuple[str, Mapping[str, Tensor]]], draw: Callable[[Axes, Tensor], float]
) -> tuple[Figure, SubFigure]:
    """Returns a figure with panels of maps, and its empty leftmost part.

    A panel has a label and a row per layer, of the maps (N, H, W) of its N heads by the layer's name. `draw` draws a
    map, and returns the number that is written next to its head.
    """
    columns = min(max(len(maps) for _, rows in panels for maps in rows.values()), MAX_HEADS)
    widths = [2.6] + [1.6 + 1.2 * columns] * len(panels)
    height = 1.6 + 1.3 * max(len(rows) for _, rows in panels)
    figure = Figure(figsize=(sum(widths), max(height, 4.0)))
    figure.suptitle(title)
    left, *parts = figure.subfigures(1, len(widths), width_ratios=widths)
    for part, (label, rows) in zip(parts, panels, strict=True):
        part.suptitle(label)
        for i, (name, maps) in enumerate(rows.items()):
            for j, head in enumerate(evenly(len(maps), MAX_HEADS)):
                ax = part.add_subplot(len(rows), columns, 1 + i * columns + j)
                ax.set(xticks=[], yticks=[], ylabel='' if j else short_name(name))
                ax.set_title(f'head {head + 1}: {draw(ax, maps[head]):.3g}')
    return figure, left


def figure_of_blocks(
    args: argparse.Namespace, *ylabels: str
) -> tuple[Figure, list[tuple[Sequence[Axes], list[tuple[Layer, ...]]]]]:
    """Returns a figure, and for each model its axes over the blocks, one per label, and its blocks.

    A block is its traces for all images.
    """
    models, images = open_models(args)
    figure = Figure(figsize=(6 * len(models), 3.6 * len(ylabels) + 0.8))
    axes = figure.subplots(len(ylabels), len(models), squeeze=False, sharey='row', sharex='col')
    columns = []
    for column, model in zip(axes.T, models, strict=True):
        blocks = list(zip(*map(model.look, images), strict=True))
        for ax, ylabel in zip(column, ylabels, strict=True):
            ax.set_ylabel(ylabel)
            ax.grid(axis='y', alpha=0.3)
        column[0].set_title(model.label)
        names = [f'{short_name(layers[0].name)} ({layers[0].stride})' for layers in blocks]
        column[-1].set_xticks(range(len(blocks)), names, rotation=90)
        column[-1].set_xlabel('block (stride in pixels)')
        columns.append((column, blocks))
    return figure, columns


# ---- the figures ----


def magnitude(args: argparse.Namespace) -> Figure:
    """Draws token magnitudes after the first norm of blocks, per head (Fig. 1), of the first image.

    They are drawn relative to their mean over the tokens; the number next to a head is their standard deviation / mean.
    """
    models, images = open_models(args)
    panels = []
    for model in models:
        rows = {}
        for layer in choose(model.look(images[0]), args.layers, MOST_LAYERS):
            maps = metrics.token_magnitudes(layer.after, layer.num_heads)
            name = f'{layer.name}\n{type(layer.norm).__name__}'
            rows[name] = maps / maps.mean(dim=(1, 2), keepdim=True)
        panels.append((model.label, rows))
    everything = torch.cat([maps.flatten() for _, rows in panels for maps in rows.values()])
    norm = Normalize(*np.percentile(everything, [0.5, 99.5]))

    def draw(ax: Axes, values: Tensor) -> float:
        ax.imshow(values, norm=norm, interpolation='nearest')
        return metrics.relative_spread(values[None]).item()

    title = 'Magnitudes of tokens after the first norm of a block; next to the head: standard deviation / mean'
    figure, left = figure_of_maps(title, panels, draw)
    picture = left.subplots()
    picture.imshow(images[0].pixels)
    picture.axis('off')
    left.colorbar(ScalarMappable(norm), ax=picture, location='bottom', label='norm of a token /\nmean of its head')
    return figure


def attention_distance(args: argparse.Namespace) -> Figure:
    """Draws and prints the mean attention distance per head and block (Fig. 2), and that of uniform attention."""
    figure, columns = figure_of_blocks(args, 'mean distance in tokens', 'mean distance in pixels')
    for axes, blocks in columns:
        label = axes[0].get_title()
        if blocks[0][0].attention is None:
            raise UserError(f"{label}: attention-distance supports TokenNorm's PVT, PVTv2, Swin and ViT only")
        print(f'{label}: mean attention distance of each head, in tokens, on {len(blocks[0])} images')
        for i, layers in enumerate(blocks):
            name, stride = layers[0].name, layers[0].stride
            distances, uniform = (
                torch.stack([layer.attention.mean_distances(uniform) for layer in layers]).mean(dim=0)
                for uniform in (False, True)
            )
            heads = ' '.join(f'{distance:.2f}' for distance in distances.tolist())
            print(f'  {name} (stride {stride}, uniform {uniform.mean():.2f}): {heads}')
            for ax, factor in zip(axes, (1, stride), strict=True):
                (expected,) = ax.plot([i - 0.3, i + 0.3], [uniform.mean() * factor] * 2, color='0.6', linewidth=2)
                drawn = ax.scatter([i] * len(distances), distances * factor, s=18, color='C0', alpha=0.7, zorder=3)
    for ax in columns[0][0]:
        ax.set_ylim(0)
    figure.legend([drawn, expected], ['a head', 'if attention were uniform'], ncols=2, loc='outside lower center')
    return figure


def variation(args: argparse.Namespace) -> Figure:
    """Draws how far the mean that a block's first norm subtracts is from the tokens (Fig. 3b), in float64.

    Lines are the medians, bands the quartiles of the tokens of all images.
    """
    kinds = {"the model's": 'o-', "LayerNorm's": 's--', "instance norm's": '^:'}
    figure, columns = figure_of_blocks(args, 'variation coefficient\nnorm of |(x - mu) / x|', '|x - mu| / |x|')
    for axes, blocks in columns:
        quartiles = np.stack([np.percentile(distances_of_means(layers), [25, 50, 75], axis=-1) for layers in blocks])
        for i, (kind, style) in enumerate(kinds.items()):
            for j, ax in enumerate(axes):
                low, median, high = quartiles[:, :, i, j].T
                (line,) = ax.plot(median, style, markersize=4, label=f'mu: {kind}')
                ax.fill_between(range(len(blocks)), low, high, color=line.get_color(), alpha=0.2)
        axes[0].set_yscale('log')
    figure.suptitle('Distance of the mean mu from the tokens x:\nmedian and quartiles of the tokens')
    figure.legend(*axes[0].get_legend_handles_labels(), ncols=len(kinds), loc='outside lower center')
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
        scalars = read_scalars(source)
        curves = {name.removeprefix(LAMBDA): curve for name, curve in scalars.items() if name.startswith(LAMBDA)}
        if not curves:
            raise UserError(
                f'{source} has no lambda in */vis_data/scalars.json: train with DTN and '
                "custom_imports of dict(imports=['experiments.layer_statistics']), custom_hooks of "
                "[dict(type='tokennorm.LambdaHook')]"
            )
        return lambda_curves(source.resolve().name, curves)
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    layers = {name: lambdas_of(norm) for name, norm in model.dtn_layers().items()}
    figure = Figure(figsize=(max(7.0, 1.5 + 0.35 * len(layers)), 5))
    axes = figure.subplots(2, sharex=True, sharey=True)
    for ax, (kind, title) in zip(axes, MIXED.items(), strict=True):
        for i, lambdas in enumerate(layers.values()):
            heads = lambdas.get(kind, [])
            ax.scatter([i] * len(heads), heads, s=18, alpha=0.7, zorder=3, color='C0')
        ax.axhline(0.5, color='0.6', linewidth=1, linestyle='--')
        ax.set_ylabel(f'lambda of the {title}')
        ax.grid(alpha=0.3)
    axes[1].set_xticks(range(len(layers)), [short_name(name) for name in layers], rotation=90)
    figure.suptitle(f'{model.label}\nevery head (1: within tokens, 0: across tokens)')
    return figure


def lambda_curves(label: str, curves: Mapping[str, Curve]) -> Figure:
    """Draws lambda against iterations: mean and range of the heads of each layer."""
    layers = list(dict.fromkeys(name.rsplit('.', 2)[0] for name in curves))
    colors = colormaps['turbo'](np.linspace(0.05, 0.95, len(layers)))
    figure = Figure(figsize=(11, max(4.2, 1.2 + 0.19 * len(layers))))
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (kind, title) in zip(axes, MIXED.items(), strict=True):
        for layer, color in zip(layers, colors, strict=True):
            if f'{layer}.{kind}.mean' in curves:
                mean, low, high = (curves[f'{layer}.{kind}.{which}'] for which in ('mean', 'min', 'max'))
                style = '--' if layer.endswith('norm2') else '-'
                ax.plot(list(mean), list(mean.values()), style, color=color, label=short_name(layer), linewidth=1.2)
                band = [low[step] for step in mean], [high[step] for step in mean]
                ax.fill_between(list(mean), *band, color=color, alpha=0.1, linewidth=0)
        ax.set_title(f'lambda of the {title}')
        ax.set_xlabel('iteration')
        ax.grid(alpha=0.3)
    axes[0].set_ylabel('lambda (1: within tokens, 0: across tokens)')
    figure.suptitle(f'{label}: mean and range of the heads')
    figure.legend(*axes[1].get_legend_handles_labels(), loc='outside right upper')
    return figure


def positions(args: argparse.Namespace) -> Figure:
    """Draws the row of P of one token per head; lighter is larger.

    As initialized and in the checkpoint (Fig. 8); without a checkpoint as initialized and from a truncated normal
    distribution with standard deviation 0.02 (Fig. 7). The token has a yellow box, the largest weights have red ones.
    """
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    layers = model.dtn_layers()
    names = choose(list(layers), args.layers, MOST_LAYERS)
    initial = dtn_layers(open_backbone(model.cfg, None))
    states = {'before training': [initial[name].position for name in names]}
    if args.checkpoint:
        states['after training'] = [layers[name].position for name in names]
    else:
        empty = [torch.empty_like(layers[name].position) for name in names]
        states['truncated normal'] = [torch.nn.init.trunc_normal_(position, std=0.02) for position in empty]
    titles = [f'{name}\nwindows of {layers[name].pool}' if layers[name].pool > 1 else name for name in names]
    panels = []
    for state, found in states.items():
        panels.append((state, dict(zip(titles, map(metrics.row_of_p, found), strict=True))))
    figure, left = figure_of_maps(model.label, panels, draw_row_of_p)
    left.suptitle('rows of P\nyellow: the token\nred: the largest weight,\nwhich stands above')
    return figure


def draw_row_of_p(ax: Axes, weights: Tensor) -> float:
    """Draws the weights (H, W) of `metrics.TOKEN`, each map in its own scale, and returns the largest."""
    ax.imshow(weights, cmap='gray', vmin=0, interpolation='nearest')
    largest = torch.nonzero(weights > weights.max() * (1 - 1e-9)).tolist()  # there may be ties
    for (y, x), color, inset in (*((place, 'red', 0.0) for place in largest), (metrics.TOKEN, 'yellow', 0.2)):
        side = 1 - 2 * inset
        ax.add_patch(Rectangle((x - 0.5 + inset, y - 0.5 + inset), side, side, fill=False, ec=color, lw=1))
    return weights.max().item()


def directions(args: argparse.Namespace) -> Figure:
    """Draws tokens before and after a block's first norm, in their first two principal components (Fig. 9)."""
    models, images = open_models(args)
    rows = []
    for model in models:
        layers = [choose(model.look(image), args.layers, 1)[0] for image in images]
        label, norm = model.label.replace(', ', '\n'), f'{layers[0].name}: {type(layers[0].norm).__name__}'
        rows.append((f'{label}\nbefore {norm}', [layer.before.flatten(0, 1) for layer in layers]))
        rows.append((f'{label}\nafter {norm}', [layer.after.flatten(0, 1) for layer in layers]))
    figure = Figure(figsize=(2.4 * len(images) + 1.2, 1.5 + 2.45 * len(rows)))
    axes = figure.subplots(1 + len(rows), len(images), squeeze=False, height_ratios=[0.5] + [1] * len(rows))
    for ax, image in zip(axes[0], images, strict=True):
        ax.imshow(image.pixels)
        ax.axis('off')
    for row, (label, cells) in zip(axes[1:], rows, strict=True):
        components = [metrics.principal_components(tokens) for tokens in cells]
        reach = 1.05 * max(points.abs().max().item() for points, _ in components)
        for ax, tokens, (points, shares) in zip(row, cells, components, strict=True):
            some, norms = evenly(len(tokens), _MOST_POINTS), tokens.norm(dim=-1)
            drawn = ax.scatter(*points[some].T, c=(norms / norms.mean())[some], vmin=0.5, vmax=1.5, s=6, linewidths=0)
            ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect='equal')
            variance = f'{shares[0]:.0%} + {shares[1]:.0%} of the variance'
            ax.set_title(f'{variance}\nmean cosine {metrics.mean_cosine(tokens):.2f}')
        row[0].set_ylabel(label)
    figure.colorbar(drawn, ax=axes[1:], shrink=0.6, extend='both', label='norm of a token / mean of its image')
    figure.supxlabel('first principal component (second: upwards)')
    return figure


def patch_scales(args: argparse.Namespace) -> Figure:
    """Draws the learned scales of Dual PatchNorm's first norm, arranged as a patch: mean, and each channel."""
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    scales = metrics.patch_scales(model.backbone)
    shown = [('mean', scales.mean(-1)), *((f'channel {i}', channel) for i, channel in enumerate(scales.unbind(-1)))]
    figure = Figure(figsize=(2.2 * len(shown) + 1, 3))
    figure.suptitle(f'{model.label}: scales of the norm before the projection')
    axes = figure.subplots(1, len(shown), squeeze=False)[0]
    for ax, (name, values) in zip(axes, shown, strict=True):
        picture = ax.imshow(values.numpy(), vmin=float(scales.min()), vmax=float(scales.max()))
        ax.set_title(name)
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
