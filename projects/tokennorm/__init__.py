"""Token normalisation for vision transformers in OpenMMLab.

Importing the package imports nothing else: `tokennorm.norms` needs torch alone, `tokennorm.backbones` torch, einops and
mmengine. mmengine itself imports `tokennorm.registry` when a config says `type='tokennorm.PVT'`.
"""

from tokennorm.version import __version__

__all__ = ['__version__']
