"""Rules about recipes: each looks at what was built.

Importing this room registers the rules of all rooms. Its modules and `findings/elsewhere.py` import neither torch nor
OpenMMLab, but inside of functions.
"""

from tokennorm.datasets import discovery as finding
from tokennorm.datasets.coco import inspection
from tokennorm.engine.rules import datasets_and_loaders as data
from tokennorm.engine.rules import hooks_and_schedules as training
from tokennorm.engine.rules import image_sizes, model
from tokennorm.engine.rules.built import Built, judge, verify
from tokennorm.findings import elsewhere

__all__ = ['Built', 'data', 'elsewhere', 'finding', 'image_sizes', 'inspection', 'judge', 'model', 'training', 'verify']
