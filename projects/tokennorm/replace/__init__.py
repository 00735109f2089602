"""Token normalizers and Dual PatchNorm in models that others built. It needs torch, einops and mmengine."""

from tokennorm.replace.replace_norms import replace_norms
from tokennorm.replace.replace_stem import replace_stem

__all__ = ['replace_norms', 'replace_stem']
