"""Figures of the DTN paper, drawn from a trained backbone and images.

Each function takes the arguments of `tokennorm analyze` and returns a figure.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from mmengine.config import Config

from tokennorm.analysis import metrics, plots
from tokennorm.analysis.loading import Image, open_backbone, open_config, open_images, prepare
from tokennorm.analysis.probe import Layer, look
from tokennorm.norms import DTN
from tokennorm.report.lambdas import dtn_layers, ratios_of, read_ratio_curves

MOST_LAYERS = 8  # rows of a figure


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


def magnitude(args: argparse.Namespace) -> Figure:
    """Draws token magnitudes after the first norm of blocks, per head (Fig. 1), of the first image."""
    models, images = open_models(args)
    maps, spreads = {}, {}
    for model in models:
        layers = choose(model.look(images[0]), args.layers, MOST_LAYERS)
        values = [metrics.token_magnitudes(layer.after, layer.num_heads) for layer in layers]
        names = [f'{layer.name}\n{type(layer.norm).__name__}' for layer in layers]
        maps[model.label] = list(zip(names, values, strict=True))
        spreads[model.label] = [metrics.relative_spread(value) for value in values]
    return plots.draw_magnitudes(images[0].pixels, maps, spreads)


def attention_distance(args: argparse.Namespace) -> Figure:
    """Draws and prints the mean attention distance per head and block (Fig. 2)."""
    models, images = open_models(args)
    found = {}
    for model in models:
        looks = [model.look(image) for image in images]
        if looks[0][0].attention is None:
            raise ValueError(f"{model.label}: attention-distance supports TokenNorm's PVT, PVTv2, Swin and ViT only")
        found[model.label] = [
            (
                layers[0].name,
                layers[0].stride,
                torch.stack([layer.attention.mean_distances() for layer in layers]).mean(dim=0),
                torch.stack([layer.attention.mean_distances(uniform=True) for layer in layers]).mean(dim=0),
            )
            for layers in zip(*looks, strict=True)
        ]
        print(f'{model.label}: mean attention distance of each head, in tokens, on {len(images)} images')
        for name, stride, distances, uniform in found[model.label]:
            heads = ' '.join(f'{distance:.2f}' for distance in distances.tolist())
            print(f'  {name} (stride {stride}, uniform {uniform.mean():.2f}): {heads}')
    return plots.draw_distances(found)


def variation(args: argparse.Namespace) -> Figure:
    """Draws how far the mean that a block's first norm subtracts is from the tokens (Fig. 3b), in float64."""
    models, images = open_models(args)
    found = {}
    for model in models:
        looks = [model.look(image) for image in images]
        rows = []
        for layers in zip(*looks, strict=True):
            kinds = {"the model's": [], "LayerNorm's": [], "instance norm's": []}
            for layer in layers:
                tokens = layer.before.double()
                means = (
                    metrics.mean_of(layer.norm, tokens),
                    tokens.mean(dim=-1, keepdim=True),
                    tokens.mean(dim=(0, 1)),
                )
                for values, mean in zip(kinds.values(), means, strict=True):
                    both = (metrics.variation_coefficient(tokens, mean), metrics.relative_distance(tokens, mean))
                    values.append(torch.stack(both).flatten(1))
            measured = {kind: tuple(torch.cat(values, dim=1)) for kind, values in kinds.items()}
            rows.append((layers[0].name, layers[0].stride, measured))
        found[model.label] = rows
    return plots.draw_variation(found)


def lambda_curves(args: argparse.Namespace) -> Figure:
    """Draws lambda of mean and variance: over a training run, from its work directory, or of a checkpoint (Fig. 4)."""
    source = Path(args.config)
    if source.is_dir():
        curves = read_ratio_curves(source)
        if not curves:
            raise ValueError(
                f'{source} has no lambda in */vis_data/scalars.json: train with DTN, by `tokennorm train` or with '
                "custom_hooks of dict(type='tokennorm.LambdaHook')"
            )
        return plots.draw_ratio_curves(source.resolve().name, curves)
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    return plots.draw_ratios(model.label, {name: ratios_of(norm) for name, norm in dtn_layers_of(model).items()})


def positions(args: argparse.Namespace) -> Figure:
    """Draws the row of P of one token per head.

    As initialized and in the checkpoint (Fig. 8); without a checkpoint as initialized and from a truncated normal
    distribution with standard deviation 0.02 (Fig. 7).
    """
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    layers = dtn_layers_of(model)
    if other := [type(layer).__name__ for layer in layers.values() if type(layer).forward is not DTN.forward]:
        raise ValueError(f'{model.label} has {other[0]}, whose P is not that of Eq. 6, which this figure draws')
    before = dtn_layers(open_backbone(model.cfg, None))
    rows = []
    for name in choose(list(layers), args.layers, MOST_LAYERS):
        pool = f'\nwindows of {layers[name].pool}' if layers[name].pool > 1 else ''
        position = layers[name].position
        other = position if args.checkpoint else torch.nn.init.trunc_normal_(torch.empty_like(position), std=0.02)
        rows.append((name + pool, metrics.row_of_p(before[name].position), metrics.row_of_p(other)))
    titles = ('before training', 'after training' if args.checkpoint else 'before training, truncated normal')
    return plots.draw_positions(model.label, rows, metrics.TOKEN, titles)


def directions(args: argparse.Namespace) -> Figure:
    """Draws tokens before and after a block's first norm, in their first two principal components (Fig. 9)."""
    models, images = open_models(args)
    found = {}
    for model in models:
        looks = [choose(model.look(image), args.layers, 1)[0] for image in images]
        norm = f'{looks[0].name}: {type(looks[0].norm).__name__}'
        found[model.label] = [
            (f'before {norm}', [describe(layer.before) for layer in looks]),
            (f'after {norm}', [describe(layer.after) for layer in looks]),
        ]
    return plots.draw_directions([image.pixels for image in images], found)


def scales(args: argparse.Namespace) -> Figure:
    """Draws the learned scales of Dual PatchNorm's first norm, arranged as a patch."""
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    return plots.draw_patch_scales(model.label, metrics.patch_scales(model.backbone))


def describe(grid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Principal components, parts of the variance, norms and mean cosine of tokens (H, W, C)."""
    tokens = grid.flatten(0, 1)
    return (*metrics.principal_components(tokens), tokens.norm(dim=-1), metrics.mean_cosine(tokens))


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


def dtn_layers_of(model: Model) -> dict[str, torch.nn.Module]:
    """The DTN layers by name."""
    layers = dtn_layers(model.backbone)
    if not layers:
        raise ValueError(f'{model.label} has no DTN layer')
    return layers


def choose(items: list, wanted: list[int] | None, most: int) -> list:
    """The items of the wanted numbers; without any, `most` items, evenly spaced."""
    if wanted is None:
        return [items[i] for i in plots.evenly(len(items), most)]
    if not all(0 <= i < len(items) for i in wanted):
        raise ValueError(f'--layers {" ".join(map(str, wanted))}: must be between 0 and {len(items) - 1}')
    return [items[i] for i in wanted]


FIGURES: dict[str, Callable[[argparse.Namespace], Figure]] = {
    'magnitude': magnitude,
    'attention-distance': attention_distance,
    'variation': variation,
    'lambda': lambda_curves,
    'positions': positions,
    'directions': directions,
    'patch-scales': scales,
}
