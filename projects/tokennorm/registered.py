"""Registers the normalizers and stems in TokenNorm's registry, under their names in `NORMS` and `STEMS`."""

from tokennorm.layers import STEMS
from tokennorm.norms import NORMS
from tokennorm.registry import MODELS

for name, cls in (NORMS | STEMS).items():
    MODELS.register_module(name=name, module=cls)
