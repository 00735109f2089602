"""Token normalization layers and Dual PatchNorm in third-party models. It needs torch and einops."""

from tokennorm.replace.replace_norms import replace_norms
from tokennorm.replace.replace_stem import replace_stem

__all__ = ['replace_norms', 'replace_stem']
