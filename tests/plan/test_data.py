"""A config follows the data that it is pointed at."""

import json
import re
import shutil

import pytest
from mmdet.registry import DATASETS
from mmdet.structures.mask import BitmapMasks
from mmengine import Config, DefaultScope

from experiments.shapes import make_shapes_dataset
from tests.helpers.coco_files import edit
from tests.helpers.configs import ROOT, anchors_config
from tests.helpers.folders import with_pentagons
from tokennorm.base.messages import UserError
from tokennorm.config.open_config import read_config
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.datasets.discovery import find_splits
from tokennorm.engine.rules import Built, verify
from tokennorm.findings import Findings, Refusal, judging
from tokennorm.plan.anchor_fit import anchor_fit
from tokennorm.plan.changes import Plan
from tokennorm.plan.data import choose_image_size, fit_limits, limit_detections, use_coco_splits, use_data_folder
from tokennorm.plan.image_size import short_side


@pytest.fixture(scope='module')
def shapes(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('made') / 'shapes', num_train=6, num_val=3, image_size=64)


@pytest.fixture
def data(shapes, tmp_path):
    return shutil.copytree(shapes, tmp_path / 'shapes')


def use(cfg, root):
    splits = find_splits(root)
    use_coco_splits(cfg, splits)
    fit_limits(cfg, inspect_splits(splits).most_objects)


def test_a_config_is_pointed_at_a_folder_without_a_plan(data):
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    use_data_folder(cfg, data, ('train', 'val'), fit_images=False)
    assert cfg.train_dataloader.dataset.metainfo['classes'] == ('disk', 'square', 'triangle', 'star')


@pytest.mark.parametrize('name', ['retinanet_pvt-t_fpn_1x_coco.py', 'mask-rcnn_pvt-t-dtn_fpn_1x_coco.py'])
def test_data_classes_heads_and_evaluators_are_set(data, name):
    cfg = Config.fromfile(ROOT / 'pvt' / name)
    use(cfg, data)
    assert not cfg.val_evaluator.get('use_mp_eval')
    verify('config', Built(cfg, ('train', 'val', 'test')))
    for split, file in (('train', 'train'), ('val', 'val'), ('test', 'val')):
        dataset = cfg[f'{split}_dataloader'].dataset
        assert dataset.metainfo.classes == ('disk', 'square', 'triangle', 'star')
        assert dataset.metainfo.category_ids == (1, 2, 3, 4)
        assert dataset.ann_file == str(data / 'annotations' / f'{file}.json')
        assert dataset.data_prefix.img == f'{data}/images/{file}/'
        if split != 'train':
            assert cfg[f'{split}_evaluator'].ann_file == dataset.ann_file
    if name.startswith('mask'):
        assert cfg.model.roi_head.bbox_head.num_classes == cfg.model.roi_head.mask_head.num_classes == 4
    else:
        assert cfg.model.bbox_head.num_classes == 4


def test_the_written_config_names_no_other_data(data):
    cfg = Config.fromfile(ROOT / 'trial' / 'retinanet_pvt-mini_fpn.py')
    assert {'RBC', 'data/bccd/'} <= set(re.findall(r"'([^']+)'", cfg.pretty_text))
    use_data_folder(Plan(cfg), str(data), ('train', 'val'))
    assert 'RBC' not in cfg.pretty_text
    assert 'bccd' not in cfg.pretty_text
    Config.fromstring(cfg.pretty_text, '.py')


@pytest.mark.parametrize('name', ['retinanet_pvt-mini_fpn', 'mask-rcnn_pvt-mini_fpn'])
def test_anchors_follow_the_boxes_where_no_head_is_trained(data, name, capsys):
    def shrink(content):
        for annotation in content['annotations']:
            x, y, *_ = annotation['bbox']
            annotation.update(bbox=[x, y, 6, 6], area=18, segmentation=[[x, y, x + 6, y, x + 6, y + 6]])

    edit(data, 'train', shrink)
    head, key = ('rpn_head', 'scales') if name.startswith('mask') else ('bbox_head', 'octave_base_scale')
    for fits, load_from in ((True, None), (True, 'detector.pth'), (False, None)):
        cfg = Config.fromfile(ROOT / 'trial' / f'{name}.py')
        cfg.load_from, before = load_from, cfg.model[head].anchor_generator[key]
        use_data_folder(Plan(cfg), str(data), ('train', 'val'), fit_anchors=fits)
        is_set = fits and load_from is None
        assert (cfg.model[head].anchor_generator[key] != before) == is_set
        assert ('warning' in capsys.readouterr().out) != is_set
        fit = anchor_fit(cfg, json.loads((data / 'annotations' / 'train.json').read_text()))
        assert fit.is_poor != is_set
        assert (fit.unmatched < 0.25) == is_set


def test_detections_are_as_many_as_objects(data):
    def crowd(content):
        mask = [[1, 1, 6, 1, 6, 6]]
        for i in range(230):
            one = dict(content['annotations'][0], id=10_000 + i, bbox=[1, 1, 5 + i / 10, 5], segmentation=mask)
            content['annotations'].append(one)

    edit(data, 'val', crowd)
    cfg = Config.fromfile(ROOT / 'pvt' / 'mask-rcnn_pvt-t_fpn_1x_coco.py')
    use(cfg, data)
    assert cfg.model.test_cfg.rcnn.max_per_img == 300
    assert cfg.model.test_cfg.rpn.max_per_img == 1000
    assert cfg.val_evaluator.use_mp_eval


def test_limits_follow_beyond_a_thousand_objects():
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    fit_limits(cfg, most_objects=1501)
    assert cfg.model.test_cfg.max_per_img == cfg.model.test_cfg.nms_pre == 1600
    assert cfg.val_evaluator.proposal_nums == (100, 300, 1600)
    cfg = Config.fromfile(ROOT / 'pvt' / 'mask-rcnn_pvt-t_fpn_1x_coco.py')
    fit_limits(cfg, most_objects=1501)
    assert cfg.model.test_cfg.rpn.max_per_img == cfg.model.test_cfg.rcnn.max_per_img == 1600


def test_a_test_split_is_tested_on_and_small_images_are_kept(data):
    for split in ('images', 'annotations'):
        source = data / split / ('val' if split == 'images' else 'val.json')
        target = data / split / ('test' if split == 'images' else 'test.json')
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    use(cfg, data)
    assert cfg.test_dataloader.dataset.ann_file == cfg.test_evaluator.ann_file == str(data / 'annotations/test.json')
    assert cfg.train_dataloader.dataset.filter_cfg == dict(filter_empty_gt=False, min_size=0)
    assert cfg.train_dataloader.dataset.type == 'tokennorm.CocoDataset'
    assert len(set(map(tuple, cfg.train_dataloader.dataset.metainfo.palette))) == 4


@pytest.mark.parametrize('name', ['retinanet_pvt-t_fpn_1x_coco.py', 'mask-rcnn_pvt-t_fpn_1x_coco.py'])
def test_images_without_objects_are_kept(data, name):
    content = edit(
        data, 'train', lambda c: c.update(annotations=[a for a in c['annotations'] if a['image_id'] not in (2, 5)])
    )
    edit(data, 'train', lambda c: [a.update(iscrowd=1) for a in c['annotations'] if a['image_id'] == 3])
    cfg = Config.fromfile(ROOT / 'pvt' / name)
    use(cfg, data)
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    assert len(dataset) == len(content['images']) == 6


def test_masks_are_needed_for_a_config_that_learns_them(data, capsys):
    edit(data, 'train', lambda content: content['annotations'][0].pop('segmentation'))
    masks, boxes = (ROOT / 'pvt' / f'{name}_pvt-t_fpn_1x_coco.py' for name in ('mask-rcnn', 'retinanet'))
    with pytest.raises(Refusal, match=r'has errors, listed above; fix these problems and rerun') as refusal:
        use_data_folder(Plan(Config.fromfile(masks)), data, ('train', 'val'))
    assert [one.code for one in refusal.value.findings] == ['no-mask']
    assert 'ERROR: train: annotations without a segmentation' in capsys.readouterr().out
    use_data_folder(Plan(Config.fromfile(boxes)), data, ('train', 'val'))
    assert 'no-mask' not in capsys.readouterr().out
    with judging(Findings(allow=['no-mask'])):
        use_data_folder(Plan(Config.fromfile(masks)), data, ('train', 'val'))
    assert 'warning: train: annotations without a segmentation' in capsys.readouterr().out


def test_masks_that_are_run_lengths_are_read_as_bitmaps(data):
    def flags():
        cfg = read_config('mmdet::rtmdet/rtmdet-ins_tiny_8xb32-300e_coco')
        use_data_folder(cfg, data, ('train', 'val'), image_size=64)
        places = [cfg.train_dataloader.dataset.pipeline, cfg.custom_hooks[1].switch_pipeline]
        steps = [step for steps in places for step in steps if 'poly2mask' in step]
        return cfg, [step.poly2mask for step in steps]

    cfg, bitmaps = flags()
    assert bitmaps == [True, True]
    with DefaultScope.overwrite_default_scope('mmdet'):
        dataset = DATASETS.build(cfg.train_dataloader.dataset)
    objects = [dataset[i]['data_samples'].gt_instances for i in range(3)]
    assert sum(map(len, objects))
    assert all(isinstance(found.masks, BitmapMasks) for found in objects)
    with_pentagons(data)
    assert flags()[1] == [False, False]


def test_a_classifier_has_no_coco_data(data):
    with pytest.raises(UserError, match=r'train_dataloader of this config does not read a COCO annotation file'):
        use(Config.fromfile(ROOT / 'imagenet' / 'pvt-tiny_8xb128_in1k.py'), data)


def test_small_images_are_those_with_short_sides():
    images = [dict(width=400, height=100), dict(width=100, height=900)]
    choose_image_size(plan := Plan(anchors_config()), dict(images=images), None)
    assert short_side(plan.cfg) == 192
    assert plan.changes[-1].why == '--data: short side of the images 192 pixels (recipe: 800)'


@pytest.mark.parametrize(
    ('queries', 'sigmoid', 'limit'), [(900, True, 300), (50, True, 200), (50, False, 50), (0, True, 300)]
)
def test_a_detr_keeps_as_many_detections_as_its_queries_give(queries, sigmoid, limit):
    """With a sigmoid each query gives one per class: of 4 classes and 50 queries there are 200."""
    head = dict(num_classes=4, loss_cls=dict(use_sigmoid=sigmoid))
    model = dict(num_queries=queries, bbox_head=head, test_cfg=dict(max_per_img=300))
    limit_detections(model)
    assert model['test_cfg']['max_per_img'] == limit
