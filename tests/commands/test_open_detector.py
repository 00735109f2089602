"""`tokennorm.Detector` opens exported files, without PyTorch, as it opens work directories."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import tokennorm
from tests.helpers.handmade_onnx import write_handmade
from tokennorm.base.messages import UserError
from tokennorm.inference.runtime import ExportedDetector
from tokennorm.inference.torch_detector import TorchDetector


@pytest.fixture(scope='module')
def model_file(tmp_path_factory):
    return write_handmade(tmp_path_factory.mktemp('model') / 'model.onnx', thresholds=[0.1, 0.8], config='tiny.py')


def test_an_exported_file_has_the_attributes_of_a_detector(model_file):
    detector = tokennorm.Detector(str(model_file), device='cpu')
    assert isinstance(detector, tokennorm.Detector)
    assert isinstance(detector.backend, ExportedDetector)
    assert (detector.classes, detector.category_ids) == (('round', 'square'), [3, 7])
    assert (detector.checkpoint, detector.recommended) == (str(model_file), [0.1, 0.8])
    assert detector.description == f'{model_file}, made with tiny.py'
    image = np.zeros((64, 96, 3), np.uint8)
    np.testing.assert_array_equal(detector(image).boxes, [[4, 6, 20, 30]])
    assert detector(image).class_names == ['square']
    assert [len(found) for found in detector([image, image], 'best', batch_size=2)] == [0, 0]
    assert repr(detector).startswith(f'<Detector {model_file}, made with ')
    assert detector.run(detector.inputs_of([image])).keys() >= {'boxes', 'scores', 'labels'}
    with pytest.raises(AttributeError, match="has no attribute 'cfg'"):
        _ = detector.cfg


def test_copies_of_a_detector_detect(model_file):
    detector, image = tokennorm.Detector(model_file), np.zeros((64, 96, 3), np.uint8)
    for other in (pickle.loads(pickle.dumps(detector)), copy.deepcopy(detector)):
        assert other.backend is not detector.backend
        np.testing.assert_array_equal(other(image, 'best').boxes, detector(image, 'best').boxes)


def test_both_kinds_are_detectors(demo_trained):
    detector = tokennorm.Detector(demo_trained, device='cpu')
    assert isinstance(detector, tokennorm.Detector)
    assert isinstance(detector.backend, TorchDetector)
    assert detector.most_detections == detector.backend.most_detections > 0
    assert detector.model is detector.backend.model
    image = np.zeros((96, 96, 3), np.uint8)
    np.testing.assert_array_equal(detector(image, 0.0).boxes, detector.backend(image, 0.0).boxes)
    assert not isinstance(object(), tokennorm.Detector)


def test_classes_of_users(model_file):
    class Own(tokennorm.Detector):
        def __init__(self, name):
            self.classes = (name,)

        def detect(self, images, batch_size=1):
            return [self.detections(np.ones((1, 4)), np.ones(1), np.zeros(1, int), None) for _ in images]

    assert Own('a.onnx').classes == ('a.onnx',)
    assert Own('a.onnx')(np.zeros((9, 9, 3), np.uint8)).class_names == ['a.onnx']

    class Other(tokennorm.Detector):
        pass

    assert type(Other(model_file)) is Other
    assert Other(model_file).classes == ('round', 'square')


def test_an_exported_file_needs_neither_torch_nor_mmdet(model_file):
    code = (
        'import sys\n'
        "sys.modules.update(dict.fromkeys(['torch', 'torchvision', 'mmengine', 'mmcv', 'mmdet', 'PIL']))\n"
        'import numpy, tokennorm\n'
        f'found = tokennorm.Detector({str(model_file)!r})(numpy.zeros((64, 96, 3), numpy.uint8))\n'
        "assert found.class_names == ['square'], found"
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=100)


@pytest.mark.parametrize('given', [dict(device='cuda:0'), dict(options={'a': 1}), dict(tta=True), dict(checkpoint='x')])
def test_arguments_of_pytorch_are_refused(model_file, given):
    with pytest.raises(UserError, match=r'model\.onnx: an exported file takes no checkpoint, device, options or tta'):
        tokennorm.Detector(model_file, **given)


def test_files_that_cannot_be_opened_are_named(tmp_path):
    with pytest.raises(UserError, match=r'model file .*none\.xml not found'):
        tokennorm.Detector(tmp_path / 'none.xml')
    with pytest.raises(UserError, match=r'a\.pt2: load a \.pt2 file with torch\.export\.load'):
        tokennorm.Detector('a.pt2')
    with pytest.raises(UserError, match='was not written by `tokennorm export`'):
        tokennorm.Detector(write_handmade(tmp_path / 'other.onnx', format=None))
