"""The generated configs, metafiles and docs/configs.md are what tools/write_configs.py makes of its table."""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
TOOL = runpy.run_path(str(ROOT / 'tools' / 'write_configs.py'))
FOLDERS = TOOL['COLLECTIONS']
# Table 11 of the DTN paper: box AP of RetinaNet; box AP and mask AP of Mask R-CNN.
TABLE_11 = {
    'pvt-t': (36.7, 36.7, 35.1),
    'pvt-t-dtn': (38.0, 38.1, 36.3),
    'pvt-s': (40.4, 40.4, 37.8),
    'pvt-s-dtn': (41.8, 41.7, 39.0),
}
# Tables 1 (ViT) and 2: top-1 and top-5 accuracy on ImageNet.
ACCURACIES = {
    'vit-small_8xb128': (1, 79.9, 95.0),
    'vit-small-dtn_8xb128': (1, 80.6, 95.3),
    'vit-base_8xb128': (1, 81.8, 95.9),
    'vit-base-dtn_8xb128': (1, 82.3, 96.0),
    'pvt-tiny_8xb128': (2, 75.1, 92.3),
    'pvt-tiny-dtn_8xb128': (2, 76.3, 93.1),
    'pvt-small_8xb128': (2, 79.9, 95.0),
    'pvt-small-dtn_8xb128': (2, 80.8, 95.6),
    'swin-tiny_16xb64': (2, 81.2, 95.5),
    'swin-tiny-dtn_16xb64': (2, 81.9, 96.0),
}


@cache
def models():
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    return [model for path in index['Import'] for model in yaml.safe_load((ROOT / path).read_text())['Models']]


def test_committed_files_equal_generated_ones():
    for path, text in TOOL['generated'](TOOL['present_counts']()):
        assert path.read_text() == text, f'{path.relative_to(ROOT)}: run tools/write_configs.py'


def test_every_config_has_a_row_and_the_other_way_round():
    files = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in ROOT.glob(f'configs/{folder}/*.py')}
    assert {model['Config'] for model in models()} == files
    assert all(Path(model['Config']).stem == model['Name'] for model in models())


def test_the_paper_s_results_are_those_of_its_tables_and_none_are_ours():
    found = {}
    for model in models():
        assert 'Results' not in model
        if TOOL['PAPER'] in model:
            paper = model[TOOL['PAPER']]
            values = [value for result in paper['Results'] for value in result['Metrics'].values()]
            found[model['Name']] = (int(paper['Source'].rpartition('Table ')[2]), *values)
    expected = {f'retinanet_{name}_fpn_1x_coco': (11, row[0]) for name, row in TABLE_11.items()}
    expected |= {f'mask-rcnn_{name}_fpn_1x_coco': (11, *row[1:]) for name, row in TABLE_11.items()}
    assert found == expected | {f'{name}_in1k': row for name, row in ACCURACIES.items()}


def test_every_model_was_counted():
    assert all({'Parameters', 'FLOPs'} <= model['Metadata'].keys() for model in models())


@pytest.mark.slow
@pytest.mark.parametrize(
    'name', ['retinanet_pvt-t-dtn_fpn_1x_coco', 'retinanet_swin-t-p4-w7_fpn_1x_coco', 'vit-small-dtn_8xb128_in1k']
)
def test_counts_are_those_of_the_built_model(name):
    entry = next(entry for entry in TOOL['entries']() if entry.name == name)
    assert TOOL['count'](entry) == TOOL['present_counts']()[name]


def test_the_model_zoo_lists_every_config():
    rows = re.findall(r'^\| \[(.*?)\]\((.*?)\)', (ROOT / 'docs' / 'configs.md').read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == [entry.name for entry in TOOL['entries']()]
    assert all((ROOT / 'docs' / link).resolve().is_file() for _, link in rows)
