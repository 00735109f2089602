"""tools/write_metafiles.py --count: the counts in the metafiles are those of the built models."""

import runpy
from pathlib import Path

import pytest

from tokennorm.config.open_config import read_config

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / 'tools' / 'write_metafiles.py'))
COUNT = runpy.run_path(str(ROOT / 'tools' / 'flops.py'))['count']


@pytest.mark.slow
@pytest.mark.parametrize(
    'name', ['retinanet_pvt-t-dtn_fpn_1x_coco', 'retinanet_swin-t-p4-w7_fpn_1x_coco', 'vit-small-dtn_8xb128_in1k']
)
def test_counts_are_those_of_the_built_model(name):
    (entry,) = (entries[name] for entries in TOOL['read_results']().values() if name in entries)
    size = TOOL['IMAGE'][TOOL['NAME'].fullmatch(name)['data']]
    assert COUNT(read_config(name), size).items() <= entry.items()
