"""Token normalization for vision transformers in OpenMMLab.

Importing the package imports nothing else: `tokennorm.norms`, `replace_norms` and `replace_stem` need torch and einops,
`tokennorm.backbones` also mmengine, which imports `tokennorm.registry` when a config has `type='tokennorm.PVT'`.
`train` needs the OpenMMLab packages, and so does `Detector`, except for exported files.
"""

import sys
from importlib import import_module
from typing import Any

from tokennorm.config.paths import config
from tokennorm.environment import import_mmdet
from tokennorm.version import __version__

_LAZY = dict(
    Detector='tokennorm.inference.opening:Detector',
    replace_norms='tokennorm.replace:replace_norms',
    replace_stem='tokennorm.replace:replace_stem',
    train='tokennorm.engine.training:train',
)

__all__ = ['Detector', '__version__', 'config', 'replace_norms', 'replace_stem', 'train']

if 'mmengine.config.utils' in sys.modules:
    import_module('tokennorm.registry')  # mmengine then finds configs by `tokennorm::`


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    module, _, attribute = _LAZY[name].partition(':')
    if name == 'train':
        import_mmdet()
    return getattr(import_module(module), attribute)
