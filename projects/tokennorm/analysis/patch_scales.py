"""Learned scales of the first norm of Dual PatchNorm (Kumar et al., 2023), arranged as a patch.

The paper reports that the pixels at the centre and the corners of a patch are upweighted.
"""

from matplotlib.figure import Figure
from torch import Tensor, nn

from tokennorm.layers import DualPatchEmbed


def patch_scales(backbone: nn.Module) -> Tensor:
    """Returns the scales (gamma) of the norm before the projection, (ph, pw, C).

    Raises:
        ValueError: if the backbone has no `DualPatchEmbed` with such a norm.
    """
    for module in backbone.modules():
        if isinstance(module, DualPatchEmbed) and getattr(module.patch_norm, 'weight', None) is not None:
            return module.patch_norm.weight.detach().unflatten(0, (*module.window, -1))
    raise ValueError('no DualPatchEmbed with a norm before its projection: set stem_cfg')


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
