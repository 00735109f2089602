"""The metafiles and docs/configs.md are what tools/write_metafiles.py makes of configs/results.yml."""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
TOOL = runpy.run_path(str(ROOT / 'tools' / 'write_metafiles.py'))
FOLDERS = TOOL['COLLECTIONS']
# Table 11 of the DTN paper: box AP of RetinaNet; box AP and mask AP of Mask R-CNN.
TABLE_11 = {
    'pvt-t': (36.7, 36.7, 35.1),
    'pvt-t-dtn': (38.0, 38.1, 36.3),
    'pvt-s': (40.4, 40.4, 37.8),
    'pvt-s-dtn': (41.8, 41.7, 39.0),
}
# Tables 1 (ViT), 2 and 9: top-1 and top-5 accuracy on ImageNet; Table 9 has top-1 only.
ACCURACIES = {
    'vit-tiny_8xb128': (1, 72.2, 91.3),
    'vit-tiny-star_8xb128': (1, 72.3, 91.4),
    'vit-tiny-star-dtn_8xb128': (1, 73.2, 91.7),
    'vit-small_8xb128': (1, 79.9, 95.0),
    'vit-small-dtn_8xb128': (1, 80.6, 95.3),
    'vit-small-star_8xb128': (1, 80.6, 95.2),
    'vit-small-star-dtn_8xb128': (1, 81.7, 95.8),
    'vit-base_8xb128': (1, 81.8, 95.9),
    'vit-base-dtn_8xb128': (1, 82.3, 96.0),
    'vit-base-star_8xb128': (1, 81.7, 95.8),
    'vit-base-star-dtn_8xb128': (1, 82.5, 96.1),
    'pvt-tiny_8xb128': (2, 75.1, 92.3),
    'pvt-tiny-dtn_8xb128': (2, 76.3, 93.1),
    'pvt-small_8xb128': (2, 79.9, 95.0),
    'pvt-small-dtn_8xb128': (2, 80.8, 95.6),
    'pvt-large_8xb128': (9, 81.7),
    'pvt-large-dtn_8xb128': (9, 82.3),
    'pvtv2-b3_8xb128': (9, 83.2),
    'pvtv2-b3-dtn_8xb128': (9, 83.7),
    'swin-tiny_16xb64': (2, 81.2, 95.5),
    'swin-tiny-dtn_16xb64': (2, 81.9, 96.0),
    'swin-small_16xb64': (9, 83.0),
    'swin-small-dtn_16xb64': (9, 83.5),
}
ALL = 'LN, DTN, DPN, DTN+DPN'


@cache
def models():
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    return [model for path in index['Import'] for model in yaml.safe_load((ROOT / path).read_text())['Models']]


def test_committed_files_equal_generated_ones():
    results = TOOL['read_results']()
    for path, text in TOOL['generated'](results).items():
        assert path.read_text() == text, f'{path.relative_to(ROOT)}: run tools/write_metafiles.py'
    assert TOOL['results_text'](results) == (ROOT / 'configs' / 'results.yml').read_text()


def test_the_metafiles_have_every_config():
    files = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in ROOT.glob(f'configs/{folder}/*.py')}
    assert {model['Config'] for model in models()} == files
    assert all(Path(model['Config']).stem == model['Name'] for model in models())


def test_paper_results_are_those_of_its_tables():
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
    folder = 'imagenet' if name.endswith('in1k') else name.partition('_')[2].partition('-')[0]
    entry = TOOL['read_results']()[folder][name]
    assert TOOL['count'](folder, name).items() <= entry.items()


def test_the_model_zoo_lists_every_config():
    rows = re.findall(r'^\| \[(.*?)\]\((.*?)\)', (ROOT / 'docs' / 'configs.md').read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == [name for entries in TOOL['read_results']().values() for name in entries]
    assert all((ROOT / 'docs' / link).resolve().is_file() for _, link in rows)


def test_the_support_matrix_counts_config_files():
    page = (ROOT / 'docs' / 'configs.md').read_text()
    rows = dict(re.findall(r'^\| ((?:PVT|Swin|ViT)\S*(?: \S+)?) \| (.*) \|$', page, re.MULTILINE))
    assert rows['PVT-T'] == rows['Swin-T'] == f'{ALL} | {ALL} | {ALL}'
    assert rows['PVT-S'] == f'{ALL} | LN, DTN | {ALL}'
    assert rows['PVTv2-B2'] == f'{ALL} | LN, DTN | {ALL}'
    assert rows['ViT-S'] == f'{ALL} | LN | {ALL}'
    assert rows['ViT-S p32'] == ' |  | LN, DPN'
    assert rows['Swin-S'] == 'LN | LN | LN, DTN'
    variants = sum(len(cell.split(', ')) for row in rows.values() for cell in row.split(' | ') if cell.strip())
    third_party_or_one_gpu = 10
    assert variants == len(models()) - third_party_or_one_gpu
