"""A config follows the data that it is pointed at."""

import json
import shutil

import pytest
import torch
from mmdet.evaluation import CocoMetric
from mmdet.registry import DATASETS
from mmengine import Config

from tests.helpers.coco_files import edit
from tests.helpers.configs import ROOT
from tokennorm.datasets import make_shapes_dataset
from tokennorm.datasets.coco.folder import find_coco_splits
from tokennorm.datasets.coco.inspection import inspect_splits
from tokennorm.engine.checks import check_config_data
from tokennorm.engine.data import _fit_limits, use_coco_splits
from tokennorm.engine.settings import augment_strongly
from tokennorm.engine.summary import images_without_objects


@pytest.fixture
def data(tmp_path):
    return make_shapes_dataset(tmp_path / 'shapes', num_train=6, num_val=3, image_size=64)


def use(cfg, root):
    splits = find_coco_splits(root)
    return use_coco_splits(cfg, splits, inspect_splits(splits))


@pytest.mark.parametrize('name', ['retinanet_pvt-t_fpn_1x_coco.py', 'mask-rcnn_pvt-t-dtn_fpn_1x_coco.py'])
def test_data_classes_heads_and_evaluators_are_set(data, name):
    cfg = Config.fromfile(ROOT / 'pvt' / name)
    assert use(cfg, data) == []
    check_config_data(cfg, ('train', 'val', 'test'))
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


def test_detections_are_as_many_as_objects(data):
    def crowd(content):
        for i in range(230):
            content['annotations'].append(dict(content['annotations'][0], id=10_000 + i))

    edit(data, 'val', crowd)
    cfg = Config.fromfile(ROOT / 'pvt' / 'mask-rcnn_pvt-t_fpn_1x_coco.py')
    changes = use(cfg, data)
    assert changes[0].startswith('model.test_cfg.rcnn.max_per_img=300 instead of 100, for images of up to 23')
    assert cfg.model.test_cfg.rcnn.max_per_img == 300
    assert cfg.model.test_cfg.rpn.max_per_img == 1000
    assert cfg.val_evaluator.use_mp_eval


def test_limits_follow_beyond_a_thousand_objects():
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    changes = _fit_limits(cfg, most_objects=1501)
    assert cfg.model.test_cfg.max_per_img == cfg.model.test_cfg.nms_pre == 1600
    assert cfg.val_evaluator.proposal_nums == (100, 300, 1600)
    assert len(changes) == 3
    cfg = Config.fromfile(ROOT / 'pvt' / 'mask-rcnn_pvt-t_fpn_1x_coco.py')
    _fit_limits(cfg, most_objects=1501)
    assert cfg.model.test_cfg.rpn.max_per_img == cfg.model.test_cfg.rcnn.max_per_img == 1600


def test_few_objects_change_no_limit():
    cfg = Config.fromfile(ROOT / 'pvt' / 'mask-rcnn_pvt-t_fpn_1x_coco.py')
    before = cfg.to_dict()
    assert _fit_limits(cfg, most_objects=100) == []
    assert cfg.to_dict() == before


def test_a_test_split_is_tested_on_and_small_images_are_kept(data):
    for split in ('images', 'annotations'):
        source = data / split / ('val' if split == 'images' else 'val.json')
        target = data / split / ('test' if split == 'images' else 'test.json')
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    use(cfg, data)
    assert cfg.test_dataloader.dataset.ann_file == cfg.test_evaluator.ann_file == str(data / 'annotations/test.json')
    assert cfg.train_dataloader.dataset.filter_cfg == dict(filter_empty_gt=False, min_size=0)
    assert cfg.train_dataloader.dataset.type == 'CocoDataset'
    assert len(set(map(tuple, cfg.train_dataloader.dataset.metainfo.palette))) == 4


@pytest.mark.parametrize('name', ['retinanet_pvt-t_fpn_1x_coco.py', 'mask-rcnn_pvt-t_fpn_1x_coco.py'])
def test_images_without_objects_are_kept_and_counted(data, name):
    content = edit(
        data, 'train', lambda c: c.update(annotations=[a for a in c['annotations'] if a['image_id'] not in (2, 5)])
    )
    edit(data, 'train', lambda c: [a.update(iscrowd=1) for a in c['annotations'] if a['image_id'] == 3])
    cfg = Config.fromfile(ROOT / 'pvt' / name)
    use(cfg, data)
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    assert len(dataset) == len(content['images']) == 6
    assert images_without_objects(dataset) == 3
    augment_strongly(cfg)
    loaded = DATASETS.build(cfg.train_dataloader.dataset)
    assert images_without_objects(loaded) == (3 if name.startswith('mask') else 0)


def test_masks_are_needed_for_a_config_that_learns_them(data):
    edit(data, 'train', lambda content: content['annotations'][0].pop('segmentation'))
    with pytest.raises(ValueError, match=r'this config learns masks. train: annotations without a segmentation'):
        use(Config.fromfile(ROOT / 'pvt' / 'mask-rcnn_pvt-t_fpn_1x_coco.py'), data)
    use(Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py'), data)
    found = inspect_splits(find_coco_splits(data))
    assert 'not usable for masks' in str(found)
    assert 'mask' not in found.text(with_masks=False)


def test_category_ids_are_those_of_the_file(data):
    def renumber(content):
        for entry in content['categories']:
            entry['id'] += 10
        for entry in content['annotations']:
            entry['category_id'] += 10

    for split in ('train', 'val'):
        edit(data, split, renumber)
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    use(cfg, data)
    assert cfg.train_dataloader.dataset.metainfo.category_ids == (11, 12, 13, 14)


def test_a_classifier_has_no_coco_data(data):
    with pytest.raises(ValueError, match=r'train_dataloader of this config does not read one COCO annotation file'):
        use(Config.fromfile(ROOT / 'imagenet' / 'pvt-tiny_8xb128_in1k.py'), data)


def test_ap_counts_every_detection_of_a_dense_image(tmp_path):
    """150 objects found without a fault: 1, where mmdet's own limit of 100 would give 0.67."""
    boxes = [[(i % 15) * 20, (i // 15) * 20, 10, 10] for i in range(150)]
    content = dict(
        images=[dict(id=1, file_name='a.jpg', width=320, height=320)],
        annotations=[
            dict(id=i + 1, image_id=1, category_id=1, bbox=box, area=100, iscrowd=0) for i, box in enumerate(boxes)
        ],
        categories=[dict(id=1, name='cell')],
    )
    (tmp_path / 'val.json').write_text(json.dumps(content))
    found = torch.tensor([[x, y, x + w, y + h] for x, y, w, h in boxes], dtype=torch.float32)
    sample = dict(
        img_id=1,
        ori_shape=(320, 320),
        pred_instances=dict(
            bboxes=found, scores=torch.linspace(0.9, 0.5, 150), labels=torch.zeros(150, dtype=torch.long)
        ),
    )
    cfg = Config.fromfile(ROOT / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py')
    _fit_limits(cfg, most_objects=150)
    ours = {key: cfg.val_evaluator[key] for key in ('use_mp_eval', 'proposal_nums')}
    assert ours == {key: cfg.test_evaluator[key] for key in ours}
    cfg = dict(ann_file=str(tmp_path / 'val.json'), metric='bbox')
    values = {}
    for name, dense in dict(default={}, ours=ours).items():
        metric = CocoMetric(**cfg, **dense)
        metric.dataset_meta = dict(classes=('cell',))
        metric.process({}, [sample])
        values[name] = metric.evaluate(size=1)['coco/bbox_mAP']
    assert values['ours'] == pytest.approx(1.0)
    assert values['default'] == pytest.approx(0.67, abs=0.01)
