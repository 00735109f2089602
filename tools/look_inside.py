"""Draws what a trained backbone does inside, as the figures of the DTN paper: `python tools/look_inside.py FIGURE ...`

Works on detectors and classifiers with PVT, PVTv2, Swin or ViT.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import torch
from matplotlib.figure import Figure
from mmengine.config import Config

from tokennorm.engine.lambdas import dtn_layers, ratios_of, read_ratio_curves
from tokennorm.engine.runner.options import ConfigOptions
from tokennorm.research.analysis import metrics, plots
from tokennorm.research.analysis.loading import Image, open_backbone, open_config, open_images, prepare
from tokennorm.research.analysis.patch_scales import draw_patch_scales, patch_scales
from tokennorm.research.analysis.position_weights import TOKEN, row_of_p
from tokennorm.research.analysis.probe import Layer, look

MOST_LAYERS = 8  # rows of a picture


@dataclass
class Model:
    """A backbone with its label in pictures."""

    label: str
    cfg: Config
    checkpoint: str | None
    backbone: torch.nn.Module

    @classmethod
    def open(cls, config: str, checkpoint: str | None, options: dict | None) -> 'Model':
        """The backbone of a config, with the weights of a checkpoint; None is a random start."""
        cfg = open_config(Path(config), options)
        start = '' if checkpoint else ', random start'
        return cls(Path(config).stem + start, cfg, checkpoint, open_backbone(cfg, checkpoint))

    def look(self, image: Image) -> list[Layer]:
        """The blocks as they met an image, first to last."""
        return look(self.backbone, prepare(self.cfg, image))


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    figures = parser.add_subparsers(dest='figure', required=True, metavar='FIGURE')
    for name, (draw, num_images) in FIGURES.items():
        figure = figures.add_parser(name, help=draw.__doc__.splitlines()[0], description=draw.__doc__)
        what = 'config file'
        if name == 'lambda':
            what += ', or the work folder of a training with LambdaHook'
        figure.add_argument('config', help=what)
        figure.add_argument('checkpoint', nargs='?', help='of a training with it, or published; default: random start')
        if num_images:
            figure.add_argument(
                '--against', nargs='+', metavar=('CONFIG', 'CHECKPOINT'), help='another model to stand beside it'
            )
            figure.add_argument(
                '--images', type=Path, metavar='PATH', help="folder or file; default: the config's validation data"
            )
            figure.add_argument(
                '--num-images', type=int, default=num_images, metavar='N', help=f'evenly spaced; default: {num_images}'
            )
        if name in ('magnitude', 'positions', 'directions'):
            figure.add_argument(
                '--layers', type=int, nargs='+', metavar='I', help='which ones, counted from 0, that the picture shows'
            )
        figure.add_argument('--out', type=Path, metavar='FILE.png', help='default: work_dirs/inside/CONFIG_FIGURE.png')
        figure.add_argument(
            '--cfg-options', nargs='+', action=ConfigOptions, help='entries of the configs, as key=value'
        )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    if getattr(args, 'num_images', 1) < 1:
        raise SystemExit(f'error: --num-images {args.num_images} must be at least 1')
    if len(getattr(args, 'against', None) or []) > 2:
        raise SystemExit('error: --against takes a config and a checkpoint')
    out = args.out or Path('work_dirs/inside') / f'{Path(args.config).stem}_{args.figure}.png'
    if out.suffix.lower() != '.png':
        raise SystemExit(f'error: --out {out} must end in .png')
    try:
        with torch.no_grad():
            figure = FIGURES[args.figure][0](args)
    except (ImportError, OSError, RuntimeError, ValueError, cv2.error) as error:
        raise SystemExit(f'error: {error}') from None
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110, pil_kwargs=dict(compress_level=9))
    print(out)


def magnitude(args: argparse.Namespace) -> Figure:
    """Maps of token magnitudes behind the first norm of blocks, for each head (Fig. 1).

    With several images, that of the first one; LayerNorm's maps are nearly of one colour."""
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
    """The mean attention distance of each head and block (Fig. 2), in tokens, and in pixels where strides differ.

    The distance from a token to what it attends to, averaged over tokens and images. The keys of PVT stand at the
    centres of the tokens that they reduce. Class tokens and padding are left out. Printed as a table as well.
    """
    models, images = open_models(args)
    found = {}
    for model in models:
        looks = [model.look(image) for image in images]
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
    """How far from the tokens the mean lies that the first norm of a block takes off them (Fig. 3b).

    Of the model's own norms, and of LayerNorm and instance norm on the same tokens. Above, the paper's coefficient,
    which channels near zero rule; below, the distance over the token's norm. In float64.
    """
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


def ratio(args: argparse.Namespace) -> Figure:
    """lambda of the mean and of the variance: over a training, from its work folder, or a checkpoint's (Fig. 4)."""
    source = Path(args.config)
    if source.is_dir():
        curves = read_ratio_curves(source)
        if not curves:
            raise ValueError(
                f'{source} has no lambda in */vis_data/scalars.json: train with custom_hooks of '
                "dict(type='tokennorm.LambdaHook'), and with DTN"
            )
        return plots.draw_ratio_curves(source.resolve().name, curves)
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    return plots.draw_ratios(model.label, {name: ratios_of(norm) for name, norm in dtn_layers_of(model).items()})


def positions(args: argparse.Namespace) -> Figure:
    """The row of P of one token for each head, at the start of the config and in the checkpoint (Figs. 7, 8).

    On the paper's grid of 14 x 14, token 91; where statistics are pooled, a cell of it is one of the averaged cells.
    """
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    if args.checkpoint is None:
        raise ValueError('positions needs a checkpoint, to show P after training')
    after = dtn_layers_of(model)
    before = dtn_layers(open_backbone(model.cfg, None))
    rows = []
    for name in choose(list(after), args.layers, MOST_LAYERS):
        pool = f'\ncells of {after[name].pool}' if after[name].pool > 1 else ''
        rows.append((name + pool, row_of_p(before[name].position), row_of_p(after[name].position)))
    return plots.draw_positions(model.label, rows, TOKEN)


def directions(args: argparse.Namespace) -> Figure:
    """Tokens before and after the first norm of a block, in their first two principal components (Fig. 9).

    Of the first block, or that of --layers.
    """
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
    """The learned scales of the first norm of Dual PatchNorm, arranged as a patch."""
    model = Model.open(args.config, args.checkpoint, args.cfg_options)
    return draw_patch_scales(model.label, patch_scales(model.backbone))


def describe(grid: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Principal components, shares, norms and mean cosine of tokens (H, W, C)."""
    tokens = grid.flatten(0, 1)
    return (*metrics.principal_components(tokens), tokens.norm(dim=-1), metrics.mean_cosine(tokens))


def open_models(args: argparse.Namespace) -> tuple[list[Model], list[Image]]:
    """The model, the one that it stands against, and the images, read as the first one's config says."""
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
    """Its DTN layers by name; a ValueError where it has none."""
    layers = dtn_layers(model.backbone)
    if not layers:
        raise ValueError(f'{model.label} has no DTN')
    return layers


def choose(items: list, wanted: list[int] | None, most: int) -> list:
    """The items of those numbers, or without any `most` of them, evenly spaced."""
    if wanted is None:
        return [items[i] for i in plots.evenly(len(items), most)]
    if not all(0 <= i < len(items) for i in wanted):
        raise ValueError(f'--layers {" ".join(map(str, wanted))}: there are those of 0 to {len(items) - 1}')
    return [items[i] for i in wanted]


# What draws each figure, and how many images it reads.
FIGURES: dict[str, tuple[Callable[[argparse.Namespace], Figure], int]] = {
    'magnitude': (magnitude, 1),
    'attention-distance': (attention_distance, 8),
    'variation': (variation, 8),
    'lambda': (ratio, 0),
    'positions': (positions, 0),
    'directions': (directions, 3),
    'patch-scales': (scales, 0),
}


if __name__ == '__main__':
    main()
