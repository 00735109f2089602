"""Replaces the patch embedding of third-party models by Dual PatchNorm."""

from collections.abc import Mapping
from typing import Any

import torch
from einops import rearrange
from torch import nn

from tokennorm.layers import build_stem
from tokennorm.replace.grids import GridRecord, StemProjection

PROJECTIONS = ('proj', 'projection')  # in timm and in OpenMMLab


def replace_stem(model: nn.Module, stem_cfg: Mapping[str, Any], name: str | None = None) -> str:
    """Replaces the projection in a model's patch embedding by a TokenNorm stem. It changes the model in place.

    The rest of the patch embedding stays: padding, flattening and positions. A LayerNorm after the projection (Swin,
    PVT) becomes the stem's second norm, with its weight, bias and eps. The weights of the projection are kept. The norm
    before it changes the model's outputs, so the model has to be trained.

    Args:
        model: A model with a patch embedding as in timm or OpenMMLab: a `Conv2d` named `proj` or `projection` over
            square patches, optionally with a sibling `norm`.
        stem_cfg: Type and arguments of a TokenNorm stem, e.g. `dict(type='DualPatchEmbed')`.
        name: Name of the patch embedding; None is the first.

    Returns:
        The name of the patch embedding.

    Raises:
        ValueError: if the model has no such patch embedding. The model is then unchanged.
    """
    projections = {
        path: projection
        for path, module in model.named_modules()
        for projection in PROJECTIONS
        if isinstance(conv := getattr(module, projection, None), nn.Conv2d) and max(conv.stride) > 1
    }
    name = next(iter(projections), None) if name is None else name
    if name is None or name not in projections:
        raise ValueError(
            f'replace_stem: name={name!r} must be a patch embedding with a Conv2d {" or ".join(PROJECTIONS)}; '
            f'{type(model).__name__} has {", ".join(projections) or "none"}'
        )
    patch_embed = model.get_submodule(name)
    conv = getattr(patch_embed, projections[name])
    stem, overlaps = _stem_like(conv, name, stem_cfg)
    _take_norm(stem, patch_embed)
    replacement = StemProjection(stem.to(conv.weight), conv.stride[0], overlaps).train(conv.training)
    for hook in conv._forward_hooks.values():
        if isinstance(getattr(hook, '__self__', None), GridRecord):
            replacement.register_forward_hook(hook)
    setattr(patch_embed, projections[name], replacement)
    return name


def _stem_like(conv: nn.Conv2d, name: str, cfg: Mapping[str, Any]) -> tuple[nn.Module, bool]:
    """Returns a stem with the shape and the weights of a convolution, and whether its patches overlap."""
    kernel, stride = conv.kernel_size, conv.stride
    overlaps = kernel != stride
    padding = (kernel[0] // 2,) * 2 if overlaps else (0, 0)
    options = kernel[1], stride[1], conv.padding, conv.dilation, conv.groups
    if options != (kernel[0], stride[0], padding, (1, 1), 1):
        raise ValueError(
            f'replace_stem: {name}: {conv} is not a projection of square patches, centered if they overlap'
        )
    sizes = dict(in_channels=conv.in_channels, embed_dims=conv.out_channels)
    stem = build_stem(cfg, patch_size=stride[0], kernel_size=kernel[0], **sizes)
    with torch.no_grad():
        if isinstance(stem.proj, nn.Linear):
            stem.proj.weight.copy_(rearrange(conv.weight, 'd c ph pw -> d (ph pw c)'))
        else:
            stem.proj.weight.copy_(conv.weight)
        stem.proj.bias.zero_() if conv.bias is None else stem.proj.bias.copy_(conv.bias)
    return stem, overlaps


def _take_norm(stem: nn.Module, patch_embed: nn.Module) -> None:
    """Moves the norm after the projection into the stem, if the stem has one there."""
    norm = getattr(patch_embed, 'norm', None)
    if not isinstance(norm, nn.LayerNorm) or not isinstance(stem.norm, nn.LayerNorm):
        return
    stem.norm.eps = norm.eps
    stem.norm.load_state_dict(norm.state_dict(), strict=False)  # no weight or bias: 1 and 0
    patch_embed.norm = nn.Identity()
