"""Draws docs/_static/kronecker.png: P of one head on a small grid, and its two factors."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch

from tokennorm.ops.dtn_eager import axis_weights

HEIGHT, WIDTH = 5, 7
A1, A2, A3 = -0.6, 0.6, -0.3


def main() -> None:
    p_y = axis_weights(torch.tensor([A1]), torch.tensor([A3]), HEIGHT)[0]
    p_x = axis_weights(torch.tensor([A1]), torch.tensor([A2]), WIDTH)[0]
    panels = {
        f'P, {HEIGHT * WIDTH} x {HEIGHT * WIDTH}': torch.kron(p_y, p_x),
        f'$P_y$, {HEIGHT} x {HEIGHT}': p_y,
        f'$P_x$, {WIDTH} x {WIDTH}': p_x,
    }
    figure, axes = plt.subplots(1, 3, figsize=(8, 3.4), width_ratios=(3, 1, 1.3), layout='constrained')
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        axis.imshow(values, cmap='Blues')
        axis.set_title(title)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.savefig(Path(__file__).parents[1] / '_static' / 'kronecker.png', dpi=110)


if __name__ == '__main__':
    main()
