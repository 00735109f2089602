"""Token normalisation for vision transformers in OpenMMLab.

Importing the package imports nothing else: `tokennorm.norms` needs torch and einops, `tokennorm.backbones` also
mmengine, which imports `tokennorm.registry` when a config says `type='tokennorm.PVT'`.
"""

from tokennorm.version import __version__

__all__ = ['__version__']
