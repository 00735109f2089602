"""Our COCO metric and mmdet's: the same values from the same detections."""

import json
import sys
from copy import deepcopy

import numpy as np
import pytest
import torch
from mmdet.evaluation import CocoMetric as MMDetCocoMetric
from mmengine.logging import MMLogger
from pycocotools import mask as run_lengths

from tests.helpers.cases import slow
from tokennorm.evaluation import coco_metric
from tokennorm.evaluation.average_precision import COCO_AP, COCO_AR
from tokennorm.evaluation.coco_metric import CocoMetric
from tokennorm.evaluation.results import CocoResults

SIDE = 128
CLASSES = ('cell', 'dust', 'glass', 'never seen')
CATEGORY_IDS = (3, 4, 11, 90)
CVAT = dict(license=0, flickr_url='', coco_url='', date_captured=0)


def disk(box):
    """Run lengths of the ellipse in a box x, y, width, height."""
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    inside = ((x - box[0]) / box[2] - 0.5) ** 2 + ((y - box[1]) / box[3] - 0.5) ** 2 <= 0.25
    encoded = run_lengths.encode(np.asfortranarray(inside.astype(np.uint8)))
    return dict(size=encoded['size'], counts=encoded['counts'].decode())


def make_data(rng, num_images=12, most_objects=8, num_detections=30):
    """Annotations with crowds and images without objects; detections that are jittered objects and noise."""
    images, annotations, samples = [], [], []
    for image_id in range(1, num_images + 1):
        images.append(dict(id=image_id, file_name=f'{image_id}.jpg', width=SIDE, height=SIDE, **CVAT))
        found = []
        for _ in range(0 if image_id == 2 else rng.integers(1, most_objects + 1)):
            size = np.exp(rng.uniform(np.log(6), np.log(110), 2))
            box = [*rng.uniform(0, SIDE - size), *size]
            label = int(rng.integers(3))
            mask = disk(box)
            annotations.append(
                dict(
                    id=len(annotations) + 1,
                    image_id=image_id,
                    category_id=CATEGORY_IDS[label],
                    bbox=box,
                    area=float(run_lengths.area(dict(mask, counts=mask['counts'].encode()))),
                    iscrowd=int(rng.random() < 0.1),
                    segmentation=mask,
                )
            )
            near = np.array(box) + rng.normal(size=4) * 0.06 * np.array([*size, *size])
            found.append((near, label if rng.random() < 0.9 else int(rng.integers(4)), rng.beta(4, 2)))
        while len(found) < (0 if image_id == 3 else num_detections):
            size = rng.uniform(6, 60, 2)
            found.append((np.array([*rng.uniform(0, SIDE - size), *size]), int(rng.integers(4)), rng.beta(2, 4)))
        samples.append(make_sample(image_id, found))
    categories = [dict(id=i, name=name, supercategory=5) for i, name in zip(CATEGORY_IDS, CLASSES, strict=True)]
    return dict(images=images, annotations=annotations, categories=categories), samples


def make_sample(image_id, found):
    """A data sample of detections (box x, y, width, height, label, score), as mmdet's detectors return it."""
    boxes = torch.tensor(np.array([box for box, *_ in found]).reshape(-1, 4), dtype=torch.float32)
    masks = [disk(box) for box, *_ in found]
    boxes[:, 2:] += boxes[:, :2]
    instances = dict(
        bboxes=boxes,
        labels=torch.tensor([label for _, label, _ in found], dtype=torch.long),
        scores=torch.tensor([score for *_, score in found], dtype=torch.float32),
        masks=[dict(mask, counts=mask['counts'].encode()) for mask in masks],
    )
    return dict(img_id=image_id, ori_shape=(SIDE, SIDE), pred_instances=instances)


def evaluate(metric_type, ann_file, samples, classes=CLASSES, **arguments):
    metric = metric_type(ann_file=str(ann_file), **arguments)
    metric.dataset_meta = dict(classes=classes)
    metric.process({}, samples)
    return metric, metric.evaluate(size=len(samples))


@pytest.fixture(scope='module')
def made():
    return make_data(np.random.default_rng(5))


@pytest.fixture
def data(made, tmp_path):
    content, samples = made
    path = tmp_path / 'val.json'
    path.write_text(json.dumps(content))
    return path, deepcopy(samples)


@pytest.mark.parametrize('mask', [{}, '', [['10', '10', '20', '10', '20', '20']]], ids=str)
def test_boxes_are_evaluated_whatever_their_masks(data, mask, tmp_path):
    path, samples = data
    content = json.loads(path.read_text())
    for one in content['annotations']:
        one['segmentation'] = mask
    (tmp_path / 'odd.json').write_text(json.dumps(content))
    assert evaluate(CocoMetric, tmp_path / 'odd.json', samples)[1] == evaluate(CocoMetric, path, samples)[1]


@pytest.mark.parametrize(
    'arguments',
    [
        dict(metric='bbox'),
        dict(metric='segm'),
        dict(metric=['bbox', 'segm'], metric_items=['mAP', 'mAP_s', 'AR@100', 'AR@1000', 'AR_m@1000', 'AR_l@1000']),
        dict(metric='segm', mask_scores=True),
        dict(metric='bbox', iou_thrs=np.array([0.5, 0.75])),
        dict(metric='bbox', classes=('cell', 'glass')),
        dict(metric='bbox', classes=('dust', 'cell', 'glass')),
    ],
    ids=str,
)
def test_values_are_those_of_mmdet(data, arguments):
    path, samples = data
    if 'classes' in arguments:  # labels count the classes of the dataset
        for sample in samples:
            sample['pred_instances']['labels'] %= len(arguments['classes'])
    if arguments.pop('mask_scores', False):  # of Mask Scoring R-CNN: masks have scores of their own
        for sample in samples:
            sample['pred_instances']['mask_scores'] = sample['pred_instances']['scores'].flip(0)
    _, expected = evaluate(MMDetCocoMetric, path, samples, **arguments)
    metric, values = evaluate(CocoMetric, path, samples, **arguments)
    assert values == expected
    assert len(expected) >= 6
    assert 0.05 < max(expected.values()) < 0.95
    assert list(metric.detections) == metric.metrics


@pytest.mark.parametrize('beside_mmdet', [False, slow(True)])
def test_limits_without_100_count_the_last_limit(beside_mmdet, data):
    """mmdet's mAP is then -1, except with `use_mp_eval`, in processes."""
    path, samples = data
    arguments = dict(metric='bbox', proposal_nums=np.array([5, 10, 20]))
    metric, values = evaluate(CocoMetric, path, samples, **arguments)
    assert values['coco/bbox_mAP'] > 0.05
    assert metric.max_detections == 20
    if beside_mmdet:
        assert values == evaluate(MMDetCocoMetric, path, samples, use_mp_eval=True, **arguments)[1]


@pytest.mark.parametrize('limits', [(1, 10, 100, 300), (5, 100, 10, 200, 300)])
def test_more_than_three_limits_are_those_of_mmdet(data, limits):
    """pycocotools counts the third one where `mAP` has 100, and classes all."""
    path, samples = data
    arguments = dict(metric='bbox', proposal_nums=limits, classwise=True, metric_items=[*COCO_AP, *COCO_AR])
    _, expected = evaluate(MMDetCocoMetric, path, samples, **arguments)
    assert evaluate(CocoMetric, path, samples, **arguments)[1] == pytest.approx(expected, nan_ok=True)


def test_options_that_cannot_be_evaluated_stop_before_training(data):
    path, _ = data
    with pytest.raises(ValueError, match=r"metric_items has 'mAP50' \(did you mean mAP_50\?\); expected mAP, mAP_50"):
        CocoMetric(ann_file=str(path), metric_items=['mAP50'])
    with pytest.raises(ValueError, match=r"proposal_nums=\(1, 10\) with metric='bbox' must be three limits or more"):
        CocoMetric(ann_file=str(path), proposal_nums=(1, 10))


def test_one_item_and_one_iou_need_no_list(data):
    path, samples = data
    values = evaluate(CocoMetric, path, samples, metric_items='mAP', iou_thrs=0.5)[1]
    expected = evaluate(MMDetCocoMetric, path, samples, metric_items=['mAP_50'])[1]
    assert values == {'coco/bbox_mAP': expected['coco/bbox_mAP_50']}


def test_dense_images_keep_the_limits_of_mmdet(tmp_path):
    """With more than 100 detections of a class in an image mmdet's two settings differ, and ours follow each."""
    content, samples = make_data(np.random.default_rng(1), num_images=1, most_objects=160, num_detections=200)
    for entry in content['annotations']:
        entry['category_id'] = CATEGORY_IDS[0]
    for sample in samples:
        sample['pred_instances']['labels'] *= 0
    path = tmp_path / 'val.json'
    path.write_text(json.dumps(content))
    maps = []
    for arguments in (dict(), dict(use_mp_eval=True, proposal_nums=(10, 100, 150, 1000))):
        _, expected = evaluate(MMDetCocoMetric, path, samples, metric='bbox', **arguments)
        assert evaluate(CocoMetric, path, samples, metric='bbox', **arguments)[1] == expected
        maps.append(expected['coco/bbox_mAP'])
    assert maps[0] < maps[1]


def test_classwise_values_are_those_of_mmdet(data):
    path, samples = data
    _, expected = evaluate(MMDetCocoMetric, path, samples, classwise=True)
    _, values = evaluate(CocoMetric, path, samples, classwise=True)
    assert values.keys() == expected.keys()
    for key, value in expected.items():
        assert values[key] == pytest.approx(value, nan_ok=True), key


def test_classes_whose_ids_are_not_sorted_keep_their_values(data):
    """mmdet gives the AP of a class to another one then: pycocotools sorts the ids."""
    path, samples = data
    _, expected = evaluate(MMDetCocoMetric, path, samples, classwise=True)
    content, others = json.loads(path.read_text()), {3: 11, 11: 3}
    for entry in content['categories']:
        entry['id'] = others.get(entry['id'], entry['id'])
    for entry in content['annotations']:
        entry['category_id'] = others.get(entry['category_id'], entry['category_id'])
    path.write_text(json.dumps(content))
    assert evaluate(CocoMetric, path, samples, classwise=True)[1] == pytest.approx(expected, nan_ok=True)
    assert evaluate(MMDetCocoMetric, path, samples, classwise=True)[1] != pytest.approx(expected, nan_ok=True)


def test_detector_without_detections_has_an_ap_of_0(data):
    path, _ = data
    samples = [make_sample(image_id, []) for image_id in range(1, 13)]
    values = evaluate(CocoMetric, path, samples)[1]
    assert values['coco/bbox_mAP'] == values['coco/bbox_mAP_50'] == 0.0
    assert evaluate(MMDetCocoMetric, path, samples)[1] == {}


def test_images_without_objects_have_no_ap(data, monkeypatch):
    path, samples = data
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(annotations=[])))
    texts = []
    monkeypatch.setattr(MMLogger.get_current_instance(), 'warning', texts.append)
    assert evaluate(CocoMetric, path, samples)[1]['coco/bbox_mAP'] == -1
    assert texts == ['bbox: the images have no objects, so there is no AP; -1 means none.']


def test_without_hotcoco_mmdet_evaluates(data, monkeypatch):
    path, samples = data
    _, expected = evaluate(CocoMetric, path, samples, metric=['bbox', 'segm'])
    monkeypatch.setitem(sys.modules, 'hotcoco', None)
    monkeypatch.setattr(coco_metric, 'find_spec', lambda name: None)
    metric, values = evaluate(CocoMetric, path, samples, metric=['bbox', 'segm'])
    assert values == expected
    assert set(metric.detections) == {'bbox', 'segm'}
    with pytest.raises(ImportError, match='pip install hotcoco'):
        metric.detections['bbox'].evaluate({}, 'bbox')


def test_other_metrics_are_those_of_mmdet(data):
    path, samples = data
    _, values = evaluate(CocoMetric, path, samples, metric=['bbox', 'proposal'])
    assert values['coco/AR@100'] == evaluate(MMDetCocoMetric, path, samples, metric='proposal')[1]['coco/AR@100']


@pytest.mark.parametrize('limits', [(2, 4), [1, 2, 3, 4], (10,)])
def test_fast_recall_takes_any_number_of_limits(tmp_path, limits):
    content, samples = make_data(np.random.default_rng(5), num_images=1)  # mmdet's takes equal numbers of objects only
    path = tmp_path / 'val.json'
    path.write_text(json.dumps(content))
    arguments = dict(metric='proposal_fast', proposal_nums=limits)
    _, values = evaluate(CocoMetric, path, samples, **arguments)
    assert values == evaluate(MMDetCocoMetric, path, samples, **arguments)[1]
    assert list(values) == [f'coco/AR@{limit}' for limit in limits]
    CocoMetric(ann_file=str(path), metric='bbox', proposal_nums=limits, format_only=True, outfile_prefix='results')


@pytest.mark.parametrize('key', ['bboxes', 'labels', 'scores'])
@pytest.mark.parametrize('dtype', [torch.float64, torch.bool, slow(torch.float16), slow(torch.int64)])
def test_no_detections_in_any_dtype(data, key, dtype):
    path, samples = data
    samples[0] = make_sample(1, [])
    _, expected = evaluate(CocoMetric, path, samples, metric=['bbox', 'segm'])
    samples[0]['pred_instances'][key] = torch.zeros(0, dtype=dtype)
    assert evaluate(CocoMetric, path, samples, metric=['bbox', 'segm'])[1] == expected


@pytest.mark.parametrize('masks', [False, True])
def test_detections_survive_a_file(data, tmp_path, masks):
    path, samples = data
    metric, _ = evaluate(CocoMetric, path, samples, metric='segm' if masks else 'bbox')
    (detections,) = metric.detections.values()
    detections.write(tmp_path / 'detections.json')
    again = CocoResults.read(tmp_path / 'detections.json')
    np.testing.assert_array_equal(again.table.astype(np.float32), detections.table.astype(np.float32))
    assert again.masks == detections.masks
    assert (again.masks is not None) == masks


@pytest.mark.parametrize('with_hotcoco', [True, False])
def test_a_part_of_the_images_is_not_compared_with_all(tmp_path, monkeypatch, with_hotcoco):
    """As with `indices` of a dataset: the AP is that of an annotation file of these images."""
    if not with_hotcoco:
        monkeypatch.setattr(coco_metric, 'find_spec', lambda name: None)
    content, samples = make_data(np.random.default_rng(4))
    few = dict(content, images=content['images'][:4])
    few['annotations'] = [a for a in content['annotations'] if a['image_id'] <= 4]
    values = []
    for i, one in enumerate((content, few)):
        path = tmp_path / f'{i}.json'
        path.write_text(json.dumps(one))
        metric, metrics = evaluate(CocoMetric, path, samples[:4], metric=['bbox', 'segm'])
        assert metric.img_ids == [1, 2, 3, 4]
        values.append(metrics)
    assert values[0] == values[1]


@pytest.mark.parametrize('chosen', [None, [1, 2, 3, 4]], ids=['all that are read', 'by the caller'])
def test_a_metric_that_read_some_images_evaluates_others_later(tmp_path, chosen):
    content, samples = make_data(np.random.default_rng(4))
    path = tmp_path / 'annotations.json'
    path.write_text(json.dumps(content))
    metric, few = evaluate(CocoMetric, path, samples[:4])
    metric.img_ids = chosen or metric.img_ids
    metric.process({}, samples)
    later = metric.evaluate(len(samples))
    if chosen:
        assert later == few
    else:
        assert later == evaluate(CocoMetric, path, samples)[1] != few
