"""Errors of data and configs that do not fit, before anything long begins."""

import json

import pytest
from mmdet.datasets import CocoDataset, CocoPanopticDataset
from mmdet.registry import DATASETS

from tokennorm.engine.checks import check_config_data
from tokennorm.messages import UserError

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
    message = r'train_dataloader: annotation file .*elsewhere/train.json not found; set data_root'
    with pytest.raises(UserError, match=message):
        check_config_data(config(tmp_path / 'elsewhere', wrap=wrap), ('train',))


def test_classes_that_do_not_fit_are_named(folder):
    with pytest.raises(UserError, match=r'classes has cow, but the categories .* are cat, dog'):
        check_config_data(config(folder, classes=('cat', 'cow')), ('train',))
    with pytest.raises(UserError, match=r'model.bbox_head.num_classes=80, .* has 2: set it to 2'):
        check_config_data(config(folder, num_classes=80), ('train',))
    cfg = config(folder)
    cfg['model']['semantic_head'] = dict(num_classes=183)
    check_config_data(cfg, ('train',))
    cfg['model']['extra'][0]['mask_head']['num_classes'] = 3
    with pytest.raises(UserError, match=r'model.extra\[0\].mask_head.num_classes=3'):
        check_config_data(cfg, ('train',))


def test_classes_are_in_the_order_of_the_file(folder):
    """In which mmdet numbers them, whatever the order of `metainfo.classes`: AP would be that of other classes."""
    with pytest.raises(
        UserError, match=r'classes has dog, cat, but the categories in .*train.json are cat, dog: .* same order'
    ):
        check_config_data(config(folder, classes=('dog', 'cat')), ('train',))


def test_without_classes_they_are_those_of_coco(folder):
    cfg = config(folder, num_classes=80)
    del cfg['train_dataloader']['dataset']['metainfo']
    with pytest.raises(UserError, match=r'metainfo.classes has person, .* but the categories in .* are cat, dog'):
        check_config_data(cfg, ('train',))
    categories = [dict(id=i, name=name) for i, name in enumerate(CocoDataset.METAINFO['classes'])]
    (folder / 'train.json').write_text(json.dumps(CONTENT | dict(categories=categories)))
    check_config_data(cfg, ('train',))
    cfg['model']['bbox_head']['num_classes'] = 2
    with pytest.raises(UserError, match=r'num_classes=2, but metainfo.classes of train_dataloader has 80'):
        check_config_data(cfg, ('train',))


def test_a_class_of_the_user_has_the_order_of_the_file(folder):
    @DATASETS.register_module(name='OfTheUser')
    class OfTheUser(CocoDataset):
        METAINFO = dict(classes=('dog', 'cat'))

    cfg = config(folder)
    cfg['train_dataloader']['dataset'].update(type='OfTheUser', metainfo=dict())
    with pytest.raises(UserError, match=r'metainfo.classes has dog, cat, but the categories in .* are cat, dog'):
        check_config_data(cfg, ('train',))
    OfTheUser.METAINFO = dict(classes=('cat', 'dog'))
    check_config_data(cfg, ('train',))
    DATASETS.module_dict.pop('OfTheUser')


def test_a_mask2former_has_the_classes_of_the_data(folder):
    cfg = config(folder)
    cfg['model'] = dict(panoptic_head=dict(num_things_classes=1, num_stuff_classes=0))
    with pytest.raises(UserError, match=r'panoptic_head.num_things_classes=1, but .* has 2: set it to 2'):
        check_config_data(cfg, ('train',))


def test_two_files_are_evaluated_with_one_of_both(folder):
    one = config(folder)['train_dataloader']['dataset']
    (folder / 'more.json').write_text(json.dumps(CONTENT | dict(images=[dict(id=2, file_name='b.jpg')])))
    both = dict(type='ConcatDataset', datasets=[one, dict(one, ann_file='more.json')])
    cfg = config(folder) | dict(val_dataloader=dict(dataset=both))
    cfg['val_evaluator'] = dict(type='CocoMetric', ann_file=str(folder / 'merged.json'))
    merged = CONTENT | dict(images=[dict(id=2, file_name='b.jpg'), *CONTENT['images']])
    (folder / 'merged.json').write_text(json.dumps(merged))
    check_config_data(cfg, ('val',))
    (folder / 'merged.json').write_text(json.dumps(CONTENT))
    with pytest.raises(UserError, match=r'merged.json has other images than .*train.json, .*more.json'):
        check_config_data(cfg, ('val',))
    swapped = [dict(id=1, file_name='b.jpg'), dict(id=2, file_name='a.jpg')]
    (folder / 'merged.json').write_text(json.dumps(CONTENT | dict(images=swapped)))
    with pytest.raises(UserError, match=r'merged.json has other images'):
        check_config_data(cfg, ('val',))
    del cfg['val_evaluator']['ann_file']  # then it is made from the samples
    check_config_data(cfg, ('val',))
    (folder / 'more.json').write_text(json.dumps(CONTENT))
    for metric in ('CocoMetric', 'mdc.FasterCocoMetric', 'LVISMetric', 'CocoOccludedSeparatedMetric'):
        cfg['val_evaluator']['type'] = metric
        with pytest.raises(UserError, match=r'val_dataloader: several images have the id 1, .* of .*train.json, .*mor'):
            check_config_data(cfg, ('val',))


def test_panoptic_data_have_the_things_of_their_class(folder):
    meta = CocoPanopticDataset.METAINFO
    (folder / 'p.json').write_text(json.dumps(CONTENT | dict(categories=[dict(name=name) for name in meta['classes']])))
    cfg = config(folder, num_classes=len(meta['thing_classes']))
    cfg['train_dataloader']['dataset'] = dict(type='CocoPanopticDataset', data_root=str(folder), ann_file='p.json')
    check_config_data(cfg, ('train',))
