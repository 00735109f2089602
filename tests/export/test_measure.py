"""The AP of an exported file, against pycocotools."""

import json
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

import tokennorm
from experiments.shapes import CLASSES
from tests.helpers.detections import pycocotools_precision
from tests.helpers.handmade_onnx import SeesPadding, write_handmade
from tokennorm.base.messages import UserError
from tokennorm.datasets.discovery import find_splits
from tokennorm.datasets.splits import CocoSplit
from tokennorm.export.measure import change_by_padding, largest_changes, measure
from tokennorm.findings import Findings, judging
from tokennorm.inference.runtime import BaseDetector, Detections, ExportedDetector

IDS = dict(zip(CLASSES, (9, 4, 7, 2), strict=True))  # not in the order of the labels
HANDMADE = [4, 6, 16, 24]  # x, y, width and height of the square that the file finds on each image


@pytest.fixture(scope='module')
def detector(demo_trained):
    options = {'model.test_cfg.score_thr': 0.0, 'model.test_cfg.max_per_img': 5}
    return tokennorm.Detector(demo_trained, device='cpu', options=options)


@pytest.fixture
def split(detector, tmp_path):
    """Two images. On the first is a square with an IoU of 0.77 to the file's, and what PyTorch finds first, moved."""
    (tmp_path / 'val2017').mkdir()
    (tmp_path / 'annotations').mkdir()
    rng = np.random.default_rng(0)
    content = dict(images=[], annotations=[], categories=[dict(id=i, name=name) for name, i in IDS.items()])
    for i, name in enumerate(('a.png', 'b.png'), 5):
        image = cv2.resize(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8), (64, 64))
        cv2.imwrite(str(tmp_path / 'val2017' / name), image)
        content['images'].append(dict(id=i, file_name=name, width=64, height=64))
        found = detector(image, 0.0)
        x1, y1, x2, y2 = found.boxes[0].tolist()
        first = (IDS[found.class_names[0]], [x1, y1, 0.73 * (x2 - x1), y2 - y1])
        for category_id, (x, y, w, h) in [(IDS['square'], [4, 6, 16, 31 if i == 5 else 9]), first]:
            entry = dict(bbox=[x, y, w, h], area=w * h, iscrowd=0, image_id=i, category_id=category_id)
            content['annotations'].append(entry | dict(id=len(content['annotations']) + 1))
    (tmp_path / 'annotations' / 'instances_val2017.json').write_text(json.dumps(content))
    return find_splits(tmp_path, needed=('val',))['val']


def test_aps_are_those_of_pycocotools(detector, split, tmp_path):
    path = write_handmade(
        tmp_path / 'model.onnx', classes=CLASSES, category_ids=[1, 2, 3, 4], thresholds=[0.9] * 4, label=1
    )
    by_pytorch, exported = measure([detector, ExportedDetector(path)], split)
    ids = {category['name']: category['id'] for category in split.content['categories']}  # in the order of the labels
    by_file = [dict(image_id=i, category_id=ids['square'], bbox=HANDMADE, score=0.75) for i in (5, 6)]
    by_torch = []
    for image in split.content['images']:
        found = detector(cv2.imread(str(split.image_dir / image['file_name'])), 0.0)
        assert len(found) == 5
        boxes = np.concatenate([found.boxes[:, :2], found.boxes[:, 2:] - found.boxes[:, :2]], axis=1).tolist()
        for box, score, name in zip(boxes, found.scores.tolist(), found.class_names, strict=True):
            by_torch.append(dict(image_id=image['id'], category_id=ids[name], bbox=box, score=score))
    for actual, results in ((exported.aps['bbox'], by_file), (by_pytorch.aps['bbox'], by_torch)):
        found = SimpleNamespace(results=lambda results=results: results)
        precision = pycocotools_precision(split.content, found, list(ids.values()))[..., 0, -1]
        ap, ap50 = (values[values > -1].mean() for values in (precision, precision[0]))
        assert 0.01 < ap < ap50 - 0.01
        assert actual == pytest.approx(ap, abs=2e-3)  # boxes in steps of 0.01 pixels
    assert by_pytorch.milliseconds > 0


class Grid(BaseDetector):
    """Finds 15 x 10 squares on each image, in the order of their scores."""

    classes = ('square',)
    category_ids = [1]
    boxes = np.array([[10 * x, 10 * y, 10 * x + 8, 10 * y + 8] for y in range(10) for x in range(15)], np.float32)

    def detect(self, images, batch_size=1):
        count = len(self.boxes)
        scores, labels = np.linspace(0.9, 0.1, count, dtype=np.float32), np.zeros(count, np.int64)
        return [self.detections(self.boxes, scores, labels, None) for _ in images]


def test_all_detections_of_an_image_count(tmp_path):
    """COCO's AP counts the 100 best of an image: of 150 objects that would be two thirds."""
    cv2.imwrite(str(tmp_path / 'a.png'), np.zeros((100, 150, 3), np.uint8))
    annotations = [
        dict(id=i, image_id=1, category_id=1, bbox=[x, y, 8, 8], area=64, iscrowd=0)
        for i, (x, y, *_) in enumerate(Grid.boxes.tolist(), 1)
    ]
    images = [dict(id=1, file_name='a.png', width=150, height=100)]
    content = dict(images=images, annotations=annotations, categories=[dict(id=1, name='square')])
    (measured,) = measure([Grid()], CocoSplit('val', tmp_path / 'val.json', tmp_path, content))
    assert measured.aps == dict(bbox=1.0)


def test_classes_that_no_detector_has_are_left_out(split, tmp_path, capsys):
    one = ExportedDetector(write_handmade(tmp_path / 'model.onnx', classes=CLASSES[:-1]))
    (expected,) = measure([one], split)
    two = ExportedDetector(write_handmade(tmp_path / 'two.onnx', classes=CLASSES))
    with pytest.raises(UserError, match='the detectors have different classes'):
        measure([one, two], split)
    assert f'left out, with their objects: {CLASSES[-1]}' in capsys.readouterr().out
    ids = {one['id'] for one in split.content['categories'] if one['name'] != CLASSES[-1]}
    for kind, key in (('categories', 'id'), ('annotations', 'category_id')):
        split.content[kind][:] = [entry for entry in split.content[kind] if entry[key] in ids]
    assert measure([one], split)[0].aps == expected.aps


def test_annotations_without_images_or_without_a_class_are_refused(detector, split, tmp_path):
    path = write_handmade(tmp_path / 'model.onnx', classes=['disk', 'moon'])
    with pytest.raises(
        UserError, match=f"the annotations have no class 'moon'; their classes are {', '.join(CLASSES)}"
    ):
        measure([detector, ExportedDetector(path)], split)
    split.content['images'].clear()
    path = write_handmade(tmp_path / 'model.onnx', classes=CLASSES)
    with pytest.raises(UserError, match=r'instances_val2017.json has no images'):
        measure([detector, ExportedDetector(path)], split)


@pytest.mark.parametrize(('score', 'pixels', 'is_reported'), [(0.01, 0.5, False), (0.1, 0.5, True), (0.01, 3.0, True)])
def test_changes_by_padding_are_measured_and_reported(score, pixels, is_reported, split):
    with judging(Findings()) as found:
        assert change_by_padding(SeesPadding(score, pixels), split) == pytest.approx((score, pixels), abs=1e-6)
    assert [one.code for one in found] == ['padded-detections'] * is_reported
    text = f'twice the sides scores change by up to {score:.3f}, boxes by {pixels:.1f} pixels'
    assert all(text in str(one) for one in found)


def test_detections_are_compared_with_the_nearest_box_of_their_class():
    def found(*rows):
        boxes, scores, labels = zip(*rows, strict=True)
        return Detections(np.array(boxes, float), np.array(scores), np.array(labels), [''] * len(rows))

    alone = found(([0, 0, 9, 9], 0.9, 0), ([20, 0, 30, 9], 0.5, 0), ([0, 0, 9, 9], 0.31, 1), ([0, 0, 1, 1], 0.1, 1))
    padded = found(
        ([21, 0, 30, 9], 0.55, 0), ([0, 0, 9, 9.5], 0.7, 0), ([0, 0, 9, 9], 0.29, 1), ([70, 70, 90, 90], 0.2, 2)
    )
    assert largest_changes(alone, padded) == pytest.approx((0.2, 1.0, 1))
    assert largest_changes(alone, padded.select(padded.labels != 0))[0] == pytest.approx(0.9), 'it is lost'
