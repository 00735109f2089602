"""Figure of what the first norm of Dual PatchNorm leaves of flat and textured patches, by patch size and eps.

    python projects/experiments/study/patch_contrast.py data/tiny_imagenet100/val --out patch_contrast.png

The norm subtracts from each patch its mean over pixels and channels and divides by sqrt(variance + eps). Two numbers
tell what that removes: the part of the pixels' variance that lies between the means of patches, and the contrast
(standard deviation) of a patch before and after.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from matplotlib.figure import Figure
from torch import Tensor

from tokennorm.base.messages import user_errors
from tokennorm.cli.command import command
from tokennorm.datasets.image_files import IMAGE_SUFFIXES, list_images

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # ImageNet's, RGB: the data preprocessor of the configs
SIZES = (4, 8, 16)
EPS = (1e-6, 1.0)


def read_images(folder: Path, most: int) -> Tensor:
    """Reads up to `most` images of one size, evenly spread over a folder's files, as normalized pixels (N, 3, H, W)."""
    files = list_images(folder)
    if not files:
        raise ValueError(f'{folder} has no images ({", ".join(IMAGE_SUFFIXES)})')
    images = [cv2.imread(str(path))[..., ::-1] for path in files[:: -(-len(files) // most)]]
    if len({image.shape for image in images}) > 1:
        raise ValueError(f'{folder} has images of several sizes, expected one')
    pixels = torch.from_numpy(np.stack(images)).float()
    return rearrange((pixels - torch.tensor(MEAN)) / torch.tensor(STD), 'n h w c -> n c h w')


def patches_of(images: Tensor, size: int) -> Tensor:
    """Non-overlapping patches (P, size * size * C) of images (N, C, H, W), flattened as in DualPatchEmbed."""
    height, width = (side - side % size for side in images.shape[-2:])
    return rearrange(images[..., :height, :width], 'n c (h p) (w q) -> (n h w) (p q c)', p=size, q=size)


def between_means(patches: Tensor) -> float:
    """Returns the part of the variance of all pixels that lies between the means of patches, from 0 to 1."""
    return float(patches.mean(1).var(unbiased=False) / patches.var(unbiased=False))


def contrast(patches: Tensor, eps: float | None = None) -> Tensor:
    """Returns the standard deviation of each patch (P,), after a LayerNorm with `eps` if there is one."""
    if eps is not None:
        patches = F.layer_norm(patches, patches.shape[1:], eps=eps)
    return patches.std(1, unbiased=False)


def draw(images: Tensor, pictures: Tensor, path: Path, sizes: Sequence[int] = SIZES) -> dict[int, dict[str, float]]:
    """Writes the figure: the distribution of `images`, and patches of `pictures`. Returns its numbers by patch size.

    `between` is `between_means`; `p5`, `p50`, `p95` are percentiles of the patches' contrast; `flat` and `textured` are
    the contrasts after the norm of a patch at p5 and one at p95, for each eps.
    """
    figure = Figure(figsize=(11, 2.9 * len(sizes)), layout='constrained')
    grid = figure.subplots(len(sizes), 2, width_ratios=(1, 1.6), squeeze=False)
    numbers = {}
    for (histogram, strips), size in zip(grid, sizes, strict=True):
        patches = patches_of(images, size)
        before = contrast(patches)
        p5, p50, p95 = (float(before.quantile(q)) for q in (0.05, 0.5, 0.95))
        numbers[size] = dict(between=between_means(patches), p5=p5, p50=p50, p95=p95)
        for eps in EPS:
            for name, value in (('flat', p5), ('textured', p95)):
                numbers[size][f'{name}, eps {eps:g}'] = value / (value**2 + eps) ** 0.5
        _draw_contrast(histogram, patches, size, numbers[size]['between'])
        _draw_patches(strips, patches_of(pictures, size), size)
    figure.savefig(path, dpi=110)
    return numbers


def _draw_contrast(axes, patches: Tensor, size: int, between: float) -> None:
    bins = np.linspace(0, 2, 60)
    axes.hist(contrast(patches).numpy(), bins, histtype='step', color='black', label='before')
    for i, eps in enumerate(EPS):
        axes.hist(contrast(patches, eps).numpy(), bins, color=f'C{i}', alpha=0.5, label=f'after, eps {eps:g}')
    axes.set_yscale('log')
    axes.set(xlabel='contrast of a patch (standard deviation)', ylabel='patches')
    axes.set_title(f'{size} x {size}: {100 * between:.0f}% of the variance is between patch means', fontsize=9)
    axes.legend(fontsize=7)


def _draw_patches(axes, patches: Tensor, size: int, count: int = 6) -> None:
    """Draws `count` flat and `count` textured patches: as they are, and after the norm with each eps."""
    order = contrast(patches).argsort()
    flat, textured = (
        order[torch.linspace(a, b, count).mul(len(order) - 1).long()] for a, b in ((0.02, 0.08), (0.9, 0.98))
    )
    chosen = patches[torch.cat([flat, textured])]
    rows = [chosen, *(F.layer_norm(chosen, chosen.shape[1:], eps=eps) for eps in EPS)]
    shown = [rearrange(row, 'n (p q c) -> n p q c', p=size, q=size) for row in rows]
    strips = [torch.cat(list(F.pad(row, (0, 0, 0, 1, 0, 1), value=2.5)), dim=1) for row in shown]
    scaled = torch.cat(strips).add(2.5).div(5).clamp(0, 1)  # -2.5 is black, 2.5 is white, in every row alike
    axes.imshow(scaled.numpy(), interpolation='nearest')
    axes.set_xticks([count * (size + 1) / 2, count * (size + 1) * 1.5], ['flat', 'textured'])
    labels = ['before', *(f'after, eps {eps:g}' for eps in EPS)]
    axes.set_yticks([(i + 0.5) * (size + 1) for i in range(len(rows))], labels)
    axes.tick_params(length=0)


@command
def main(argv: list[str]) -> None:
    """Draws the figure and prints its numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('images', type=Path, help='folder of images of one size, with any folders inside')
    parser.add_argument('--out', type=Path, default=Path('patch_contrast.png'), help='figure to write')
    parser.add_argument(
        '--most', type=int, default=1000, metavar='N', help='images to use, evenly spread over the files'
    )
    parser.add_argument('--patches', type=Path, metavar='DIR', help='folder of the images whose patches are shown')
    args = parser.parse_args(argv)
    with user_errors(OSError, ValueError):
        images = read_images(args.images, args.most)
        numbers = draw(images, read_images(args.patches, args.most) if args.patches else images, args.out)
    for size, values in numbers.items():
        print(f'{size} x {size}: ' + ', '.join(f'{name} {value:.3f}' for name, value in values.items()))


if __name__ == '__main__':
    main()
