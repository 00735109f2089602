"""The README's table and docs/configs.md are what tools/write_tables.py makes of the metafiles."""

import re
import runpy
from copy import deepcopy
from pathlib import Path

import mmdet.utils
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
TOOL = runpy.run_path(str(ROOT / 'tools' / 'write_tables.py'))
MODELS = TOOL['read_models']()
# Table 11 of the DTN paper: box AP of RetinaNet; box and mask AP of Mask R-CNN.
TABLE_11 = {
    'pvt-t': ('36.7', '36.7 / 35.1'),
    'pvt-t-dtn': ('38.0', '38.1 / 36.3'),
    'pvt-s': ('40.4', '40.4 / 37.8'),
    'pvt-s-dtn': ('41.8', '41.7 / 39.0'),
}
# Tables 1, 2 and 9: top-1 and, but for the last, top-5 accuracy on ImageNet, with LayerNorm and with DTN.
ACCURACIES = {
    'vit-small': ((1, 79.9, 95.0), (1, 80.6, 95.3)),
    'vit-base': ((1, 81.8, 95.9), (1, 82.3, 96.0)),
    'pvt-tiny': ((2, 75.1, 92.3), (2, 76.3, 93.1)),
    'pvt-small': ((2, 79.9, 95.0), (2, 80.8, 95.6)),
    'swin-tiny': ((2, 81.2, 95.5), (2, 81.9, 96.0)),
    'pvt-large': ((9, 81.7), (9, 82.3)),
    'swin-small': ((9, 83.0), (9, 83.5)),
    'pvt-v2-b3': ((9, 83.2), (9, 83.7)),
}


def results_table_of(models):
    make = TOOL['results_table']
    make.__globals__['read_models'] = lambda: models
    try:
        return make()
    finally:
        make.__globals__['read_models'] = TOOL['read_models']


@pytest.mark.parametrize('data', ['coco', 'in1k'])
def test_every_config_is_a_model_of_a_metafile(data):
    imported = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']
    assert sorted(imported) == sorted(str(path.relative_to(ROOT)) for path in ROOT.glob('configs/*/metafile.yml'))
    models = TOOL['read_models'](data)
    configs = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(f'configs/*/*_{data}.py'))
    assert sorted(model['Config'] for model in models) == configs
    assert all(Path(model['Config']).stem == model['Name'] for model in models)


def test_the_papers_accuracies_are_its_tables_and_no_results_of_ours():
    models = TOOL['read_models']('in1k')
    assert not any('Results' in model for model in models)
    reported = {model['Name'].partition('_')[0]: model[TOOL['PAPER']] for model in models if TOOL['PAPER'] in model}
    tables = {name: int(paper['Source'].rpartition('Table ')[2]) for name, paper in reported.items()}
    accuracies = {name: list(paper['Results'][0]['Metrics'].values()) for name, paper in reported.items()}
    assert {name: (table, *accuracies[name]) for name, table in tables.items()} == {
        f'{name}{norm}': row for name, rows in ACCURACIES.items() for norm, row in zip(('', '-dtn'), rows, strict=True)
    }
    assert all(next(iter(paper['Results'][0]['Metrics'])) == 'Top 1 Accuracy' for paper in reported.values())


def test_the_papers_figures_are_its_table_11_and_no_results_of_ours():
    reported = {model['Name']: model[TOOL['PAPER']] for model in MODELS if TOOL['PAPER'] in model}
    assert {name: TOOL['average_precision'](paper, '') for name, paper in reported.items()} == {
        f'{detector}_{backbone}_fpn_1x_coco': ap
        for backbone, aps in TABLE_11.items()
        for detector, ap in zip(('retinanet', 'mask-rcnn'), aps, strict=True)
    }
    assert all('Table 11' in paper['Source'] for paper in reported.values())


def test_the_readme_has_the_table():
    readme = (ROOT / 'README.md').read_text()
    assert TOOL['readme_with_table'](readme) == readme


def test_a_result_of_ours_gets_a_row_and_a_column_of_its_own():
    models = deepcopy(MODELS)
    model = next(model for model in models if model['Name'] == 'mask-rcnn_swin-t-p4-w7-dtn_fpn_1x_coco')
    model['Results'] = [
        dict(Task='Object Detection', Dataset='COCO', Metrics={'box AP': 43.21}),
        dict(Task='Instance Segmentation', Dataset='COCO', Metrics={'mask AP': 39}),
    ]
    new = set(results_table_of(models).splitlines()) - set(results_table_of(MODELS).splitlines())
    assert (
        '| `*_swin-t-p4-w7-dtn_fpn_1x_coco` | DTN | not in the paper | not measured | not in the paper | 43.2 / 39.0 |'
        in new
    )
    assert [re.match(r'\| the \d+ others', line) is not None for line in sorted(new)] == [False, True]


def test_the_index_lists_every_model_with_its_results():
    rows = re.findall(r'^\| \[(.*?)\]\((.*?)\) \| (.*) \|$', TOOL['INDEX'].read_text(), re.MULTILINE)
    assert [name for name, _, _ in rows] == [model['Name'] for model in MODELS]
    for model, (_, link, cells) in zip(MODELS, rows, strict=True):
        assert (TOOL['INDEX'].parent / link).resolve() == ROOT / model['Config']
        paper = TOOL['average_precision'](model.get(TOOL['PAPER'], {}), '')
        assert cells.split(' | ')[-2:] == [paper, TOOL['average_precision'](model, TOOL['NOT_MEASURED'])]


@pytest.mark.slow
def test_the_index_counts_what_the_configs_build():
    mmdet.utils.register_all_modules(init_default_scope=False)
    smallest = [model for model in MODELS if re.search('retinanet_(pvt-t|pvt-v2-b0|swin-t-p4-w7|vit-s)', model['Name'])]
    assert len(smallest) == 4 * 4 + 3  # the twins, the LayerNorm start, and two for one GPU
    text = TOOL['INDEX'].read_text()
    for model in smallest:
        assert f'| {" | ".join(TOOL["index_row"](model))} |\n' in text
