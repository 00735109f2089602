"""The runtime of exported files: results in pixels of the image, and one clear line for bad input."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmdet.datasets.transforms import Resize
from PIL import Image
from pycocotools import mask as coco_masks

from tests.helpers.handmade_onnx import write_handmade
from tokennorm.cli.predict import main
from tokennorm.export.writing import trace, write_openvino
from tokennorm.inference.prediction import Results
from tokennorm.inference.runtime import ExportedDetector, ModelFileError, run_lengths
from tokennorm.messages import UserError


@pytest.fixture(scope='module')
def model_file(tmp_path_factory):
    return write_handmade(tmp_path_factory.mktemp('model') / 'model.onnx')


@pytest.fixture
def images(tmp_path):
    for name, size in (('a.png', (96, 64)), ('b/c.png', (48, 32)), ('b/gray.png', (96, 64))):
        (tmp_path / 'in' / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new('L' if 'gray' in name else 'RGB', size).save(tmp_path / 'in' / name)
    return tmp_path / 'in'


def test_boxes_are_in_pixels_of_the_image(model_file):
    """The second image is enlarged twofold to the model's scale, so that its boxes are half as large."""
    images = [np.zeros((64, 96, 3), np.uint8), np.zeros((32, 48, 3), np.uint8)]
    large, small = ExportedDetector(model_file, threads=1)(images)
    np.testing.assert_array_equal(large.boxes, [[4, 6, 20, 30]])
    np.testing.assert_array_equal(small.boxes, [[2, 3, 10, 15]])
    np.testing.assert_array_equal(small.labels, [1])
    assert ExportedDetector(model_file)([]) == []
    assert len(ExportedDetector(model_file)([np.zeros((9, 9, 3), np.uint8)], score_threshold=0.8)[0].scores) == 0


def test_predict_with_a_file_writes_coco_json_and_drawings(model_file, images, tmp_path, capsys):
    main([str(model_file), str(images), '--out', str(tmp_path / 'out')])
    content = json.loads((tmp_path / 'out' / 'detections.json').read_text())
    assert content['images'] == [
        dict(id=1, file_name='a.png', width=96, height=64),
        dict(id=2, file_name='b/c.png', width=48, height=32),
        dict(id=3, file_name='b/gray.png', width=96, height=64),
    ]
    assert content['categories'] == [dict(id=3, name='round'), dict(id=7, name='square')]
    expected = dict(id=2, image_id=2, category_id=7, bbox=[2, 3, 8, 12], area=96, iscrowd=0, score=0.75)
    assert content['annotations'][1] == expected
    assert np.asarray(Image.open(tmp_path / 'out' / 'vis' / 'b' / 'c.png')).any()
    assert 'detections.json (3 detections on 3 images)' in capsys.readouterr().out


def test_what_is_done_is_kept_when_the_process_is_stopped(model_file, images, tmp_path, monkeypatch):
    """By SIGTERM, as `docker stop` and batch systems do; the handler of before is back afterwards."""
    add = Results.add

    def add_and_stop(*args):
        add(*args)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Results, 'add', add_and_stop)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match='interrupted after 1 of 3 images'):
        main([str(model_file), str(images), '--out', str(tmp_path / 'out')])
    assert len(json.loads((tmp_path / 'out' / 'detections.json').read_text())['images']) == 1
    assert signal.getsignal(signal.SIGTERM) == before


def test_predict_with_a_file_needs_neither_torch_nor_mmcv(model_file, images, tmp_path):
    code = (
        'import sys\n'
        "sys.modules.update(dict.fromkeys(['torch', 'torchvision', 'mmengine', 'mmcv', 'mmdet', 'PIL']))\n"
        'from tokennorm.cli.main import main\n'
        f"main(['predict', {str(model_file)!r}, {str(images)!r}, '--out', {str(tmp_path / 'out')!r}])"
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=100)
    assert (tmp_path / 'out' / 'detections.json').is_file()


def test_drawings_stay_in_the_output_directory(model_file, images, tmp_path, monkeypatch):
    (tmp_path / 'here').mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    (tmp_path / 'here' / 'd.png').write_bytes((images / 'a.png').read_bytes())
    main([str(model_file), 'd.png', '../in/a.png', '--out', 'out'])
    assert [image['file_name'] for image in json.loads(Path('out/detections.json').read_text())['images']] == [
        'here/d.png',
        'in/a.png',
    ]
    assert sorted(map(str, Path('out').rglob('*.png'))) == ['out/vis/here/d.png', 'out/vis/in/a.png']


@pytest.mark.parametrize('out', ['out', '.', '..'])
def test_drawings_are_not_input_of_a_second_run(out, model_file, images, capsys):
    """The output folder may be in the folder of images, and the other way round."""
    for _ in range(2):
        main([str(model_file), str(images), '--out', str(images / out)])
        assert 'on 3 images' in capsys.readouterr().out


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


def test_files_of_version_1_0_refuse_small_images(tmp_path):
    """Their graph is wrong below 65 pixels, so that images had to be padded."""
    path = write_handmade(tmp_path / 'old.onnx', smallest_side=65)
    with pytest.raises(
        ValueError, match=r'an image of 48 x 32 pixels is resized to 96 x 64; this file takes sides of at'
    ):
        ExportedDetector(path)(np.zeros((32, 48, 3), np.uint8))


def test_run_lengths_are_those_of_pycocotools():
    rng = np.random.default_rng(0)
    masks = [rng.random((h, w)) < p for h, w, p in [(7, 5, 0.5), (40, 60, 0.02), (300, 200, 0.9), (3, 3, 0), (3, 3, 2)]]
    masks.append(np.kron(rng.random((4, 5)) < 0.5, np.ones((90, 70), bool)))
    for mask in masks:
        expected = coco_masks.encode(np.asfortranarray(mask.astype(np.uint8)))
        assert run_lengths(mask) == dict(size=expected['size'], counts=expected['counts'].decode())


def test_an_openvino_model_has_the_metadata(model_file, tmp_path):
    write_openvino(model_file.read_bytes(), ExportedDetector(model_file)._session.texts, tmp_path / 'm.xml')
    detector = ExportedDetector(tmp_path / 'm.xml', threads=1)
    assert detector.metadata == ExportedDetector(model_file).metadata
    np.testing.assert_array_equal(detector([np.zeros((32, 48, 3), np.uint8)])[0].boxes, [[2, 3, 10, 15]])


def test_a_backbone_of_one_size_is_named():
    class Fixed(torch.nn.Module):
        def forward(self, images, sizes):
            assert images.shape[2] == 224, 'Input height'
            return images + sizes.sum()

    with pytest.raises(UserError, match=r'images of any size: Input height. If its backbone is a ViT of timm'):
        trace(Fixed())
