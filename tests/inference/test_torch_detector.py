"""`Detector` gives mmdet's detections, and names images and arguments that it cannot use."""

import json
import shutil

import cv2
import numpy as np
import pytest
import torch
from mmdet.apis import DetInferencer
from mmdet.datasets import CocoDataset

import tokennorm
from tests.helpers.trained import CONFIG
from tokennorm.base.messages import UserError
from tokennorm.inference.runtime import Detections
from tokennorm.inference.torch_detector import category_ids_of


@pytest.fixture(scope='module')
def work_dir(demo_trained, tmp_path_factory):
    return shutil.copytree(demo_trained, tmp_path_factory.mktemp('work') / 'copy')


@pytest.fixture(scope='module')
def detector(work_dir):
    return tokennorm.Detector(work_dir, device='cpu')


def test_detections_are_those_of_mmdet(demo_data, work_dir, detector):
    path = next((demo_data / 'images' / 'val').iterdir())
    detector.model.test_cfg.update(score_thr=0.0, max_per_img=8)  # after one epoch all scores are low
    found = detector(path, score_threshold=0.0)
    assert len(found) == 8
    inferencer = DetInferencer(CONFIG, str(next(work_dir.glob('epoch_*.pth'))), device='cpu', show_progress=False)
    inferencer.model.test_cfg.update(score_thr=0.0, max_per_img=8)
    (expected,) = inferencer(str(path))['predictions']
    np.testing.assert_allclose(found.boxes, expected['bboxes'], atol=1e-3)
    np.testing.assert_allclose(found.scores, expected['scores'], atol=1e-5)
    assert found.labels.tolist() == expected['labels']
    assert found.class_names == [detector.classes[label] for label in expected['labels']]
    assert found.masks is None
    middle = float(np.median(found.scores))
    above = detector(path, score_threshold=middle)
    assert len(above) == (found.scores >= middle).sum() < len(found)
    np.testing.assert_array_equal(above.boxes, found.boxes[found.scores >= middle])
    thresholds = {name: middle if i else 1.0 for i, name in enumerate(detector.classes)}
    (work_dir / 'chosen.json').write_text(json.dumps(dict(classes=thresholds)))
    chosen = detector(path, score_threshold=work_dir / 'chosen.json')
    np.testing.assert_array_equal(chosen.boxes, found.boxes[(found.scores >= middle) & (found.labels > 0)])
    lowest = np.array(detector.recommended)[found.labels]  # of the checkpoint
    np.testing.assert_array_equal(detector(path, score_threshold='best').boxes, found.boxes[found.scores >= lowest])


def test_an_open_detector_is_shown_in_one_line(detector):
    assert repr(detector) == f'<Detector {detector.description}; 4 classes: disk, square, triangle, star; on cpu>'
    assert str(detector.checkpoint) in repr(detector)


def test_an_entry_that_nothing_reads_is_named(work_dir, tmp_path, capsys):
    child = tmp_path / 'child.py'
    child.write_text(f'_base_ = {CONFIG!r}\ntest_cfg = dict(score_thr=0.3)\nmy_gain = 3\n')
    tokennorm.Detector(child, next(work_dir.glob('epoch_*.pth')), device='cpu')
    assert f'warning: {child}: nothing reads my_gain [unread-entry]' in capsys.readouterr().out


def test_the_test_data_may_be_a_concatenation(demo_data, work_dir, detector):
    path = next((demo_data / 'images' / 'val').iterdir())
    datasets = dict(_delete_=True, type='ConcatDataset', datasets=[detector.cfg.test_dataloader.dataset] * 2)
    other = tokennorm.Detector(work_dir, device='cpu', options={'test_dataloader.dataset': datasets})
    other.model.test_cfg.update(detector.model.test_cfg)
    np.testing.assert_array_equal(other(path, 0.0).boxes, detector(path, 0.0).boxes)


def test_sizes_ids_and_thresholds_are_those_of_training(work_dir, tmp_path):
    checkpoint = torch.load(next(work_dir.glob('epoch_*.pth')), weights_only=False)
    checkpoint['meta']['dataset_meta'].update(image_size=72, category_ids=(7, 3, 9, 11))
    checkpoint['meta']['thresholds'] = {'disk': 0.5}  # of other classes than these four
    torch.save(checkpoint, tmp_path / 'other.pth')
    detector = tokennorm.Detector(CONFIG, tmp_path / 'other.pth', device='cpu')
    (batch,) = detector._inferencer.preprocess([np.zeros((100, 100, 3), np.uint8)])
    assert batch[1]['inputs'][0].shape == (3, 72, 72)
    assert detector.category_ids == [7, 3, 9, 11]
    assert detector.recommended is None


def test_augmented_detections_of_a_mirror_image_are_mirrored(demo_data, work_dir):
    detector = tokennorm.Detector(work_dir, device='cpu', tta=True, options={'model.test_cfg.score_thr': 0.0})
    image = cv2.imread(str(next((demo_data / 'images' / 'val').iterdir())))
    found, mirrored = detector([image, image[:, ::-1].copy()], 0.0)
    width = image.shape[1]
    assert len(found) > 10
    np.testing.assert_allclose(mirrored.scores, found.scores, atol=1e-5)
    boxes = mirrored.boxes[:, [2, 1, 0, 3]]
    boxes[:, ::2] = width - boxes[:, ::2]
    np.testing.assert_allclose(boxes, found.boxes, atol=1e-2)


def test_autocast_changes_no_detection(demo_data, detector):
    path = next((demo_data / 'images' / 'val').iterdir())
    expected = detector(path, score_threshold=0.0)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        np.testing.assert_array_equal(detector(path, score_threshold=0.0).scores, expected.scores)


def test_bad_images_and_arguments_are_named(detector, tmp_path):
    (tmp_path / 'a.jpg').write_bytes(b'no image')
    for image, message in [
        (tmp_path / 'none.jpg', r'image .*none.jpg cannot be read: No such file or directory'),
        (tmp_path / 'a.jpg', r'image .*a.jpg cannot be read: it cannot be decoded'),
        (np.zeros((4, 4, 3)), r'shape \(4, 4, 3\) and float64 must be \(H, W, 3\) in BGR, or gray \(H, W\), and uint8'),
    ]:
        with pytest.raises(ValueError, match=message):
            detector(image)
    assert detector([]) == []
    with pytest.raises(UserError, match=r'checkpoint x\.pth not found'):
        tokennorm.Detector('none', 'x.pth')


def test_detections_of_supervision():
    supervision = pytest.importorskip('supervision')
    found = Detections(
        boxes=np.array([[1, 2, 3, 4]], np.float32),
        scores=np.array([0.5], np.float32),
        labels=np.array([1]),
        class_names=['star'],
        masks=np.ones((1, 5, 6), bool),
    ).to_supervision()
    assert isinstance(found, supervision.Detections)
    assert found.xyxy.tolist() == [[1, 2, 3, 4]]
    assert found.data['class_name'].tolist() == ['star']
    assert found.mask.shape == (1, 5, 6)


def test_a_detector_of_coco_has_its_category_ids():
    ids = [*range(1, 12), *range(13, 26), 27, 28, *range(31, 45), *range(46, 66), 67, 70]
    ids += [*range(72, 83), *range(84, 91)]
    assert category_ids_of(CocoDataset.METAINFO) == ids
    assert category_ids_of(dict(classes=('a', 'b'))) == [1, 2]
