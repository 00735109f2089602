"""Token normalization layers and Dual PatchNorm in third-party models, and masks of padding. It needs torch and
einops."""

from tokennorm.replace.mask_padding import mask_padding
from tokennorm.replace.replace_norms import replace_norms
from tokennorm.replace.replace_stem import replace_stem

__all__ = ['mask_padding', 'replace_norms', 'replace_stem']
