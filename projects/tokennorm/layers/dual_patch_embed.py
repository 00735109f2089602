"""Dual PatchNorm (Kumar, Dehghani, Houlsby, 2023): a LayerNorm before and one after the patch embedding."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn

from tokennorm.layers.building import build_norm
from tokennorm.layers.pad import pad_to_multiple
from tokennorm.layers.patch_embed import check_sizes, windows_of
from tokennorm.layers.patch_statistics import PatchStatistics, patches_of

NORMS = ('dual', 'pre', 'post', 'post_pos_embed')


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
    log(its deviation + 0.05), before the second norm. It is TokenNorm's too
    (projects/experiments/study/pages/dual_patchnorm.md).

    Args:
        in_channels: Channels of the image.
        embed_dims: Channels of a token.
        patch_size: Side of a patch, or (height, width), and the stride between patches, in pixels.
        norm_cfg: The norm after the projection. A backbone passes the norm of its plain stem. None is LayerNorm with
            eps 1e-6, the eps of the paper's framework.
        kernel_size: Side of the windows, in pixels; None is `patch_size`, without overlap.
        norms: Norms to use, as in the paper's ablation: 'dual' is both, 'pre' only the one before the projection,
            'post' only the one after it. 'post_pos_embed' is 'post', but after `ViT`'s position embedding.
        patch_norm_cfg: The norm before the projection. None is LayerNorm with eps 1e-6, whatever `norm_cfg` is.
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
        patch_size: int | Sequence[int] = 16,
        norm_cfg: Mapping[str, Any] | None = None,
        kernel_size: int | None = None,
        norms: Literal['dual', 'pre', 'post', 'post_pos_embed'] = 'dual',
        patch_norm_cfg: Mapping[str, Any] | None = None,
        statistics: bool = False,
    ) -> None:
        super().__init__()
        check_sizes('DualPatchEmbed', in_channels=in_channels, embed_dims=embed_dims, kernel_size=kernel_size)
        self.patch_size, self.window, self.margin = windows_of('DualPatchEmbed', patch_size, kernel_size)
        if norms not in NORMS:
            raise ValueError(f'DualPatchEmbed: norms={norms!r} must be one of {", ".join(map(repr, NORMS))}')
        has_patch_norm = norms in ('dual', 'pre')
        if not has_patch_norm and patch_norm_cfg is not None:
            raise ValueError(f'DualPatchEmbed: norms={norms!r} has no norm before the projection; drop patch_norm_cfg')
        self.norm_after_positions = norms == 'post_pos_embed'
        layer_norm = dict(type='LN', eps=1e-6)
        patch_dims = self.window[0] * self.window[1] * in_channels
        self.patch_norm = nn.Identity()
        if has_patch_norm:
            self.patch_norm = build_norm(patch_norm_cfg or layer_norm, patch_dims, role='patch_norm_cfg')
        self.proj = nn.Linear(patch_dims, embed_dims)
        self.norm = nn.Identity() if norms == 'pre' else build_norm(norm_cfg or layer_norm, embed_dims)
        self.statistics = PatchStatistics(in_channels, embed_dims) if statistics else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) -> (B, ceil(H / ph), ceil(W / pw), embed_dims) for patches of ph x pw pixels."""
        patches = patches_of(pad_to_multiple(x, self.patch_size), self.window, self.patch_size, self.margin)
        x = self.proj(self.patch_norm(patches))
        if self.statistics is not None:
            x = x + self.statistics(patches)
        return x if self.norm_after_positions else self.norm(x)
