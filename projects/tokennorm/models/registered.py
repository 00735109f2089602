"""Registers normalizers and stems in TokenNorm's registry, under their names in `NORMS` and `STEMS`, and `LN2d`."""

from tokennorm.checkpoints.safe_reading import keep_mmengine_from_unpickling
from tokennorm.layers import STEMS
from tokennorm.layers.layer_norm_2d import LayerNorm2d
from tokennorm.norms import NORMS
from tokennorm.registry import MODELS
from tokennorm.registry.compat import mmengine_reads_its_checkpoints

for name, cls in (NORMS | STEMS | dict(LN2d=LayerNorm2d)).items():
    MODELS.register_module(name=name, module=cls)

if not mmengine_reads_its_checkpoints():  # as mmdet's tools/test.py needs it, with configs of this package
    keep_mmengine_from_unpickling()
