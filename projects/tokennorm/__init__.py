"""Token normalisation for vision transformers in OpenMMLab.

Importing the package imports nothing else: `tokennorm.norms` needs torch and einops, `tokennorm.backbones` and
`replace_norms` also mmengine, which imports `tokennorm.registry` when a config says `type='tokennorm.PVT'`.
"""

from typing import Any

from tokennorm.version import __version__

__all__ = ['__version__', 'replace_norms', 'replace_stem']


def __getattr__(name: str) -> Any:
    if name not in ('replace_norms', 'replace_stem'):
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from tokennorm import replace

    return getattr(replace, name)
