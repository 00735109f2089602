"""Token normalization for vision transformers in OpenMMLab.

Importing the package imports nothing else: `tokennorm.norms`, `replace_norms`, `replace_stem` and `mask_padding` need
torch and einops, `tokennorm.backbones` also mmengine, which imports `tokennorm.registry` when a config has
`type='tokennorm.PVT'`.
`Detector` and the functions of the commands, such as `train`, need the OpenMMLab packages, and for exported files
`Detector` and `predict` need none of them.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tokennorm.config.paths import config
from tokennorm.moved import FormerModules, former_names
from tokennorm.version import __version__

if TYPE_CHECKING:  # what `__getattr__` imports
    from tokennorm.base.messages import UserError
    from tokennorm.commands.audit import audit
    from tokennorm.commands.benchmark import benchmark
    from tokennorm.commands.check import check
    from tokennorm.commands.compare import compare
    from tokennorm.commands.open_detector import Detector
    from tokennorm.commands.predict import predict
    from tokennorm.commands.publish import publish
    from tokennorm.commands.split import split
    from tokennorm.commands.test import test
    from tokennorm.commands.train import train
    from tokennorm.replace import mask_padding, replace_norms, replace_stem

_LAZY = dict(
    Detector='tokennorm.commands.open_detector',
    UserError='tokennorm.base.messages',
    mask_padding='tokennorm.replace',
    replace_norms='tokennorm.replace',
    replace_stem='tokennorm.replace',
    **{
        name: f'tokennorm.commands.{name}'
        for name in ('audit', 'benchmark', 'check', 'compare', 'predict', 'publish', 'split', 'test', 'train')
    },
)

__all__ = [
    'Detector',
    'UserError',
    '__version__',
    'audit',
    'benchmark',
    'check',
    'compare',
    'config',
    'mask_padding',
    'predict',
    'publish',
    'replace_norms',
    'replace_stem',
    'split',
    'test',
    'train',
]

sys.meta_path.append(FormerModules)
if 'mmengine.config.utils' in sys.modules:
    import_module('tokennorm.registry')  # mmengine then finds configs by `tokennorm::`


def __getattr__(name: str) -> Any:
    return getattr(import_module(_LAZY[name]), name) if name in _LAZY else former_names(__name__)(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
