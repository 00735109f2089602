"""Dual PatchNorm (Kumar, Dehghani, Houlsby, 2023): a LayerNorm before and one after the patch embedding."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from tokennorm.builder import build_norm
from tokennorm.layers.pad import pad_to_multiple
from tokennorm.layers.patch_embed import check_sizes, overlap_margin

NORMS = ('dual', 'pre', 'post', 'post_pos_embed')
# Added to the deviation of a patch before its logarithm, in units of the data preprocessor's output.
DEVIATION_EPS = 0.05


class DualPatchEmbed(nn.Module):
    """x = LN(Linear(LN(patches))), for images of any size.

    Each patch is flattened in the order (ph, pw, C) of the paper. In models whose stem already ends in a LayerNorm
    (PVT, PVTv2, Swin) it replaces that whole stem, so it adds only the norm before the projection. Position embeddings
    come after it. Overlapping windows (PVTv2: 7 x 7 at a stride of 4) are normalized whole, with the zeros around the
    image.

    The first norm divides each patch by sqrt(variance + eps). Its eps is in squared input units: after the usual data
    preprocessor the pixels of a dataset have a variance of about 1. The default of 1e-6 gives almost every patch the
    same contrast. `patch_norm_cfg=dict(type='LN', eps=1.0)` keeps flat patches flat and compresses the contrast of
    textured ones; `dict(type='RMSNorm', eps=1.0)` keeps the mean of a patch too. These options are TokenNorm's, not the
    paper's.

    `statistics=True` adds what the first norm removes: a linear layer of the patch's mean in each channel and of
    log(its deviation + 0.05), before the second norm. It is TokenNorm's too (docs/study/dual_patchnorm.md).

    Args:
        in_channels: Channels of the image.
        embed_dims: Channels of a token.
        patch_size: Side of a patch, and the stride between patches, in pixels.
        norm_cfg: The norm after the projection. A backbone passes the norm of its plain stem. None is LayerNorm with
            eps 1e-6, the eps of the paper's framework.
        kernel_size: Side of the windows, in pixels; None is `patch_size`, without overlap.
        norms: Norms to use, as in the paper's ablation: 'dual' is both, 'pre' only the one before the projection,
            'post' only the one after it. 'post_pos_embed' is 'post', but `ViT` applies the norm after it has added the
            position embedding.
        patch_norm_cfg: The norm before the projection, which does not follow `norm_cfg`. None is LayerNorm with eps
            1e-6.
        statistics: Whether to add the patch statistics.

    Raises:
        ValueError: for sizes that are not positive integers, an unknown `norms`, or a `patch_norm_cfg` without a norm
            before the projection.
    """

    is_patch_embed = True

    def __init__(
        self,
        in_channels: int = 3,
        embed_dims: int = 768,
        patch_size: int = 16,
        norm_cfg: Mapping[str, Any] | None = None,
        kernel_size: int | None = None,
        norms: Literal['dual', 'pre', 'post', 'post_pos_embed'] = 'dual',
        patch_norm_cfg: Mapping[str, Any] | None = None,
        statistics: bool = False,
    ) -> None:
        super().__init__()
        sizes = dict(in_channels=in_channels, embed_dims=embed_dims, patch_size=patch_size, kernel_size=kernel_size)
        check_sizes('DualPatchEmbed', **sizes)
        if norms not in NORMS:
            raise ValueError(f'DualPatchEmbed: norms={norms!r} must be one of {", ".join(map(repr, NORMS))}')
        has_patch_norm = norms in ('dual', 'pre')
        if not has_patch_norm and patch_norm_cfg is not None:
            raise ValueError(
                f'DualPatchEmbed: norms={norms!r} has no norm before the projection; remove patch_norm_cfg'
            )
        self.norm_after_positions = norms == 'post_pos_embed'
        self.patch_size = patch_size
        self.window = kernel_size or patch_size
        self.margin = overlap_margin(patch_size, kernel_size)
        layer_norm = dict(type='LN', eps=1e-6)
        patch_dims = self.window**2 * in_channels
        self.patch_norm = nn.Identity()
        if has_patch_norm:
            self.patch_norm = build_norm(patch_norm_cfg or layer_norm, patch_dims, role='patch_norm_cfg')
        self.proj = nn.Linear(patch_dims, embed_dims)
        self.norm = nn.Identity() if norms == 'pre' else build_norm(norm_cfg or layer_norm, embed_dims)
        self.statistics = PatchStatistics(in_channels, embed_dims) if statistics else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, ceil(H / patch_size), ceil(W / patch_size), embed_dims)."""
        x = F.pad(pad_to_multiple(x, self.patch_size), (self.margin,) * 4)
        x = rearrange(x, 'b c h w -> b h w c')  # first, so that exported models copy whole rows of windows
        windows = x.unfold(1, self.window, self.patch_size).unfold(2, self.window, self.patch_size)
        patches = rearrange(windows, 'b h w c ph pw -> b h w (ph pw c)')
        x = self.proj(self.patch_norm(patches))
        if self.statistics is not None:
            x = x + self.statistics(patches)
        return x if self.norm_after_positions else self.norm(x)


class PatchStatistics(nn.Linear):
    """A linear layer of the mean of each channel and the log deviation of a patch."""

    def __init__(self, in_channels: int, embed_dims: int) -> None:
        super().__init__(in_channels + 1, embed_dims)
        nn.init.trunc_normal_(self.weight, std=0.02)
        nn.init.zeros_(self.bias)

    def forward(self, patches: Tensor) -> Tensor:
        """(B, H, W, ph pw C), flattened in the order (ph, pw, C) -> (B, H, W, embed_dims)."""
        means = patches.unflatten(-1, (-1, self.in_features - 1)).mean(-2)
        deviation = patches.std(-1, keepdim=True, unbiased=False)
        return super().forward(torch.cat([means, torch.log(deviation + DEVIATION_EPS)], dim=-1))
