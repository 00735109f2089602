"""The runtime of exported files: pixels of the image, thresholds per class, and one clear line for bad input."""

import copy
import json
import os
import pickle
import subprocess
import sys
import sysconfig
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmdet.datasets.transforms import Resize
from PIL import Image
from pycocotools import mask as coco_masks

import tokennorm
from tests.helpers.cases import slow
from tests.helpers.handmade_onnx import write_handmade
from tokennorm.export.writing import write_openvino
from tokennorm.inference.runtime import (
    BaseDetector,
    ExportedDetector,
    ImageError,
    ModelFileError,
    ThresholdError,
    batches_of_one_shape,
    run_lengths,
    thresholds_of,
)


class TwoClasses(BaseDetector):
    """A detector of disks and stars that finds nothing."""

    classes = ('disk', 'star')
    recommended = None


def write(path, **thresholds):
    path.write_text(json.dumps(dict(classes=thresholds)))
    return path


def test_boxes_are_in_pixels_of_the_image(model_file):
    """The second image is enlarged twofold to the model's scale, so that its boxes are half as large."""
    images = [np.zeros((64, 96, 3), np.uint8), np.zeros((32, 48, 3), np.uint8)]
    large, small = ExportedDetector(model_file, threads=1)(images)
    np.testing.assert_array_equal(large.boxes, [[4, 6, 20, 30]])
    np.testing.assert_array_equal(small.boxes, [[2, 3, 10, 15]])
    np.testing.assert_array_equal(small.labels, [1])
    assert ExportedDetector(model_file)([]) == []
    assert len(ExportedDetector(model_file)([np.zeros((9, 9, 3), np.uint8)], score_threshold=0.8)[0].scores) == 0


def test_an_open_detector_is_shown_in_one_line(model_file):
    shown = repr(ExportedDetector(model_file))
    assert shown.startswith(f'<Detector {model_file}, made with ')
    assert shown.endswith('; 2 classes: round, square; on onnxruntime, CPUExecutionProvider>')


def test_files_that_cannot_be_used_are_named(tmp_path):
    cases = {
        write_handmade(tmp_path / 'other.onnx', format=None): 'was not written by `tokennorm export`',
        write_handmade(tmp_path / 'newer.onnx', format=2): 'has format 2; this program reads format 1',
        write_handmade(tmp_path / 'opset.onnx', opset=99): r'cannot be loaded by onnxruntime [\d.]+: .*[Oo]pset 99',
        tmp_path / 'cut.onnx': 'cannot be loaded by onnxruntime',
        tmp_path / 'none.onnx': 'none.onnx not found',
        tmp_path / 'cut.xml': 'cannot be loaded by openvino',
    }
    (tmp_path / 'cut.onnx').write_bytes((tmp_path / 'other.onnx').read_bytes()[:200])
    (tmp_path / 'cut.xml').write_text('<net name="x">')
    for path, message in cases.items():
        with pytest.raises(ModelFileError, match=message) as raised:
            ExportedDetector(path)
        assert '\n' not in str(raised.value)


def test_a_missing_runtime_has_its_pip_line(model_file, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'onnxruntime', None)
    with pytest.raises(ModelFileError, match=r'model.onnx needs onnxruntime: pip install onnxruntime'):
        ExportedDetector(model_file)
    monkeypatch.setitem(sys.modules, 'openvino', None)
    (tmp_path / 'm.xml').write_text('')
    with pytest.raises(ModelFileError, match=r'm.xml needs openvino: pip install openvino'):
        ExportedDetector(tmp_path / 'm.xml')


def test_bad_images_are_refused_with_their_shape(model_file):
    detector = ExportedDetector(model_file)
    for image in (np.zeros((0, 9, 3)), np.zeros((0, 9)), np.zeros((9, 9, 1)), np.zeros((9, 9, 4))):
        with pytest.raises(ValueError, match=f'image of shape \\({", ".join(map(str, image.shape))}\\) and uint8 must'):
            detector([image.astype(np.uint8)])
    with pytest.raises(ValueError, match='must be a path, an array or a PIL image, not bytes'):
        detector(b'a.jpg')


def test_one_image_or_a_list_of_paths_arrays_and_pil_images(model_file, images):
    detector = ExportedDetector(model_file, threads=1)
    path = images / 'b' / 'c.png'
    one = detector(str(path))
    assert one.class_names == ['square']
    gray = np.zeros((32, 48), np.uint8)
    for found in detector([str(path), path, cv2.imread(str(path)), Image.open(path), gray]):
        np.testing.assert_array_equal(found.boxes, one.boxes)


def test_resizing_and_channels_are_those_of_mmcv(tmp_path):
    """Of pixels in BGR: by the exact size, and by the values that the model gets, in its own order of channels."""
    rng = np.random.default_rng(0)
    for color in ('RGB', 'BGR'):
        for keep_ratio in (True, False):
            rule = dict(scale=[96, 64], keep_ratio=keep_ratio)
            detector = ExportedDetector(write_handmade(tmp_path / 'model.onnx', color=color, resize=rule), threads=1)
            resize = Resize(scale=(96, 64), keep_ratio=keep_ratio)
            for size in [(51, 77), (50, 77), (77, 51), (64, 96), (200, 301), (31, 33), (3, 90)]:
                image = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
                expected = resize(dict(img=image))['img']
                inputs = detector.inputs_of([image])
                assert inputs['sizes'].tolist() == [list(expected.shape[:2])]
                pixels = inputs['images'][0].transpose(1, 2, 0)
                np.testing.assert_array_equal(pixels, expected if color == 'BGR' else expected[..., ::-1])


def test_boxes_of_images_that_were_stretched(tmp_path):
    """An image of 192 x 24 pixels is resized to 96 x 48: x is halved, y is doubled."""
    rule = dict(scale=[96, 48], keep_ratio=False)
    detector = ExportedDetector(write_handmade(tmp_path / 'model.onnx', resize=rule), threads=1)
    np.testing.assert_array_equal(detector(np.zeros((24, 192, 3), np.uint8)).boxes, [[8, 3, 40, 15]])


def test_images_of_one_shape_share_a_batch(model_file, monkeypatch):
    """So that no image is padded to the size of another, which would change its detections."""
    detector = ExportedDetector(model_file, threads=1)
    shapes, run = [], detector.run
    monkeypatch.setattr(detector, 'run', lambda inputs: shapes.append(inputs['images'].shape) or run(inputs))
    wide, tall = np.zeros((64, 96, 3), np.uint8), np.zeros((96, 64, 3), np.uint8)
    assert len(detector([wide, tall, wide, wide], batch_size=2)) == 4
    assert shapes == [(2, 3, 64, 96), (1, 3, 64, 96), (1, 3, 96, 64)]


def test_a_file_for_one_image_gets_one_at_a_time(tmp_path, monkeypatch):
    detector = ExportedDetector(write_handmade(tmp_path / 'one.onnx', batch_size=1), threads=1)
    shapes, run = [], detector.run
    monkeypatch.setattr(detector, 'run', lambda inputs: shapes.append(inputs['images'].shape) or run(inputs))
    image = np.zeros((64, 96, 3), np.uint8)
    assert len(detector([image, image], batch_size=2)) == 2
    assert shapes == [(1, 3, 64, 96)] * 2
    with pytest.raises(ValueError, match='batch_size=0 must be an integer of at least 1'):
        detector([image], batch_size=0)


def test_files_of_version_1_0_refuse_small_images(tmp_path):
    """Their graph is wrong below 65 pixels, so that images had to be padded."""
    path = write_handmade(tmp_path / 'old.onnx', smallest_side=65)
    with pytest.raises(
        ValueError, match=r'an image of 48 x 32 pixels is resized to 96 x 64; this file takes sides of at'
    ):
        ExportedDetector(path)(np.zeros((32, 48, 3), np.uint8))


def test_files_of_version_1_1_with_mean_and_std_are_not_normalized_twice(tmp_path, model_file):
    path = write_handmade(tmp_path / 'old.onnx', mean=[127.0] * 3, std=[128.0] * 3)
    image = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    old, new = ExportedDetector(path), ExportedDetector(model_file)
    np.testing.assert_array_equal(old.inputs_of([image])['images'], new.inputs_of([image])['images'])
    assert old.inputs_of([image])['images'].max() == image.max()
    np.testing.assert_array_equal(old(image).boxes, new(image).boxes)


@pytest.mark.parametrize('suffix', ['.onnx', slow('.xml')])
def test_copies_in_other_processes_open_the_file_again(suffix, model_file, tmp_path, monkeypatch):
    """From a relative path, and with what was set on the detector."""
    (tmp_path / 'm.onnx').write_bytes(model_file.read_bytes())
    write_openvino(model_file.read_bytes(), ExportedDetector(model_file)._session.texts, tmp_path / 'm.xml')
    monkeypatch.chdir(tmp_path)
    detector = ExportedDetector(f'm{suffix}', threads=1)
    detector.metadata['thresholds'] = [0.1, 0.5]
    image = np.zeros((32, 48, 3), np.uint8)
    monkeypatch.chdir('/')
    for other in (pickle.loads(pickle.dumps(detector)), copy.deepcopy(detector)):
        assert other._session is not detector._session
        assert (other.metadata, other.checkpoint) == (detector.metadata, f'm{suffix}')
        np.testing.assert_array_equal(other(image, 'best').boxes, detector(image, 'best').boxes)


SIGNAL = """
import os, signal, sys
from tokennorm.inference.runtime import ExportedDetector

signal.signal(signal.SIGINT, lambda *_: print('handled'))
first, second = ExportedDetector(sys.argv[1]), ExportedDetector(sys.argv[1])
del first
del second
os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.slow
def test_a_signal_is_handled_after_two_openvino_models_have_gone(model_file, tmp_path):
    """OpenVINO's CPU plugin leaves a stack for signal handlers that is no longer there, if it may."""
    write_openvino(model_file.read_bytes(), ExportedDetector(model_file)._session.texts, tmp_path / 'm.xml')
    command = [sys.executable, '-X', 'faulthandler', '-c', SIGNAL, str(tmp_path / 'm.xml')]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, 'handled\n')


POOL = """
import multiprocessing, sys
import numpy as np
from tokennorm.inference.runtime import ExportedDetector

if __name__ == '__main__':
    images = [np.zeros((64, 96, 3), np.uint8), np.zeros((32, 48, 3), np.uint8)]
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        found = pool.map(ExportedDetector(sys.argv[1], threads=1), images)
    print([one.boxes.tolist() for one in found])
"""


FILES = 'inference/runtime.py', 'images/pixels.py', 'base/messages.py'
SERVICE = """
import sys
sys.modules.update(dict.fromkeys(['torch', 'torchvision', 'mmengine', 'mmcv', 'mmdet', 'PIL']))
from tokennorm.inference.runtime import ExportedDetector
print(ExportedDetector(sys.argv[1])(sys.argv[2]).class_names, *(m for m in sys.modules if m.startswith('tokennorm')))
"""


def test_three_files_are_a_service_without_the_package(model_file, images, tmp_path):
    for name in FILES:
        (file := tmp_path / 'tokennorm' / name).parent.mkdir(parents=True)
        file.write_bytes((Path(tokennorm.__file__).parent / name).read_bytes())
    (tmp_path / 'service.py').write_text(SERVICE)
    command = [sys.executable, '-S', tmp_path / 'service.py', model_file, images / 'b' / 'c.png']  # not as installed
    environment = dict(os.environ, PYTHONPATH=sysconfig.get_path('purelib'))
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120)
    rooms = 'tokennorm', 'tokennorm.inference', 'tokennorm.base', 'tokennorm.base.messages'
    names = *rooms, 'tokennorm.images', 'tokennorm.images.pixels'
    assert done.stdout == f"['square'] {' '.join(names)} tokennorm.inference.runtime\n", done.stderr


@pytest.mark.slow
def test_a_process_pool_takes_a_detector(model_file, tmp_path):
    (tmp_path / 'pool.py').write_text(POOL, encoding='utf-8')
    command = [sys.executable, tmp_path / 'pool.py', model_file]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == '[[[4.0, 6.0, 20.0, 30.0]], [[2.0, 3.0, 10.0, 15.0]]]\n'


def test_run_lengths_are_those_of_pycocotools():
    rng = np.random.default_rng(0)
    masks = [rng.random((h, w)) < p for h, w, p in [(7, 5, 0.5), (40, 60, 0.02), (300, 200, 0.9), (3, 3, 0), (3, 3, 2)]]
    masks.append(np.kron(rng.random((4, 5)) < 0.5, np.ones((90, 70), bool)))
    for mask in masks:
        expected = coco_masks.encode(np.asfortranarray(mask.astype(np.uint8)))
        assert run_lengths(mask) == dict(size=expected['size'], counts=expected['counts'].decode())


def test_errors_of_calls_are_user_errors():
    """And the errors of Python that they were before."""
    for kind, other in ((ImageError, ValueError), (ThresholdError, ValueError), (ModelFileError, RuntimeError)):
        assert issubclass(kind, tokennorm.UserError)
        assert issubclass(kind, other)


def test_numbers_files_and_recommended_ones(tmp_path):
    detector, path = TwoClasses(), write(tmp_path / 'thresholds.json', star=0.5, disk=0.25)
    for chosen, expected in ((path, [0.25, 0.5]), (str(path), [0.25, 0.5]), ('0.4', [0.4] * 2), (0.4, [0.4] * 2)):
        assert detector.thresholds(chosen).tolist() == expected
    with pytest.raises(
        ThresholdError, match=r'score thresholds best: there are none for this file; training notes them'
    ):
        detector.thresholds('best')
    detector.recommended = [0.1, 0.7]
    assert detector.thresholds('best').tolist() == [0.1, 0.7]
    with pytest.raises(ThresholdError, match=r'none.json not found; give best, a number or a thresholds.json'):
        detector.thresholds(tmp_path / 'none.json')
    with pytest.raises(ThresholdError, match=r"has no score threshold of each class \(KeyError: 'star'"):
        detector.thresholds(write(tmp_path / 'other.json', disk=0.5))
    for value in ('NaN', '7', '-3', '1e400', '"0.5"', 'true'):
        path.write_text(f'{{"classes": {{"disk": {value}, "star": 0.1}}}}')
        with pytest.raises(ThresholdError, match='is not a number from 0 to 1'):
            detector.thresholds(path)
    for chosen in ([0.1, 0.2, 0.3], dict(disk=0.1, star=0.2), 'half', None):
        with pytest.raises(
            ThresholdError, match=r'must be best, a number, a file, or 2 numbers|not found|must be from 0'
        ):
            detector.thresholds(chosen)
    for number in ('nan', '-0.1', 1.5):
        with pytest.raises(ThresholdError, match=f'score threshold {number} must be from 0 to 1'):
            detector.thresholds(number)


def test_exported_file_has_thresholds_in_its_metadata(tmp_path):
    """Its one detection is a square with a score of 0.75."""
    image = [np.zeros((64, 96, 3), np.uint8)]
    plain = ExportedDetector(write_handmade(tmp_path / 'plain.onnx'))
    detector = ExportedDetector(write_handmade(tmp_path / 'model.onnx', thresholds=[0.9, 0.75]))
    assert len(detector(image, 'best')[0].scores) == len(plain(image)[0].scores) == 1
    assert len(plain(image, [0.1, 0.8])[0].scores) == len(plain(image, 0.8)[0].scores) == 0
    with pytest.raises(ThresholdError, match='thresholds best: there are none'):
        plain(image, 'best')


def test_thresholds_are_those_of_their_checkpoint(tmp_path):
    assert thresholds_of(tmp_path / 'a.pth') is None
    path = write(tmp_path / 'thresholds.json', star=0.5)
    assert thresholds_of(tmp_path / 'a.pth') == path
    path.write_text(json.dumps(dict(classes=dict(star=0.5), checkpoint='work_dirs/x/a.pth')))
    assert (thresholds_of(tmp_path / 'a.pth'), thresholds_of(tmp_path / 'b.pth')) == (path, None)


def test_batches_have_images_of_one_shape():
    shapes = [(2, 3), (4, 3), (2, 3), (2, 3)]
    assert list(batches_of_one_shape(shapes, 2)) == [[0, 2], [3], [1]]
    assert list(batches_of_one_shape(shapes, np.int64(3))) == [[0, 2, 3], [1]]


@pytest.mark.parametrize('batch_size', [0, -1, 2.5, '2', None])
def test_a_wrong_batch_size_is_named(batch_size):
    with pytest.raises(ValueError, match=rf'^batch_size={batch_size!r} must be an integer of at least 1$'):
        list(batches_of_one_shape([(2, 3)] * 3, batch_size))
