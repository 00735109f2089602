"""Errors of data and configs that do not fit, before anything long begins."""

import json

import pytest

from tokennorm.datasets.checks import check_config_data

CONTENT = dict(
    images=[dict(id=1, file_name='a.jpg', width=40, height=30)],
    annotations=[dict(id=1, image_id=1, category_id=7, bbox=[1, 2, 9, 9], area=81, iscrowd=0, segmentation=[[1, 2]])],
    categories=[dict(id=3, name='cat'), dict(id=7, name='dog')],
)


def config(folder, classes=('cat', 'dog'), num_classes=2, wrap=None):
    dataset = dict(type='CocoDataset', data_root=str(folder), ann_file='train.json', metainfo=dict(classes=classes))
    return dict(
        model=dict(bbox_head=dict(num_classes=num_classes), extra=[dict(mask_head=dict(num_classes=num_classes))]),
        train_dataloader=dict(dataset=wrap(dataset) if wrap else dataset),
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / 'train.json').write_text(json.dumps(CONTENT))
    return tmp_path


@pytest.mark.parametrize(
    'wrap',
    [None, lambda d: dict(type='RepeatDataset', dataset=d), lambda d: dict(type='ConcatDataset', datasets=[d, d])],
)
def test_what_fits_passes_and_a_missing_file_does_not(folder, tmp_path, wrap):
    check_config_data(config(folder, wrap=wrap), ('train', 'val'))
    with pytest.raises(FileNotFoundError, match=r'train_dataloader: the annotation file .*elsewhere/train.json'):
        check_config_data(config(tmp_path / 'elsewhere', wrap=wrap), ('train',))


def test_missing_generated_data_says_how_to_make_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'tools/make_dataset.py'):
        check_config_data(config(tmp_path / 'shapes'), ('train',))


def test_classes_that_do_not_fit_are_named(folder):
    with pytest.raises(ValueError, match=r'classes has cow, but the categories .* are cat, dog'):
        check_config_data(config(folder, classes=('cat', 'cow')), ('train',))
    with pytest.raises(ValueError, match=r'model.bbox_head.num_classes=80, .* has 2: set it to 2'):
        check_config_data(config(folder, num_classes=80), ('train',))
    cfg = config(folder)
    cfg['model']['semantic_head'] = dict(num_classes=183)
    check_config_data(cfg, ('train',))
    cfg['model']['extra'][0]['mask_head']['num_classes'] = 3
    with pytest.raises(ValueError, match=r'model.extra\[0\].mask_head.num_classes=3'):
        check_config_data(cfg, ('train',))


@pytest.mark.parametrize('content', ['', '{', '[]', '{"images": []}', '{"categories": [{"id": 1}]}'])
def test_a_file_that_is_no_coco_json_is_named(folder, content):
    (folder / 'train.json').write_text(content)
    with pytest.raises(ValueError, match=r'train.json is not a COCO annotation file'):
        check_config_data(config(folder), ('train',))
