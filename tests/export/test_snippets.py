"""The programs of the export page, without this package: they prepare images and find objects as the runtime does."""

import re
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.helpers.cases import slow
from tests.helpers.exporting import CLASSES, build, config, write
from tests.helpers.handmade_onnx import add_metadata
from tokennorm.export.writing import write_openvino
from tokennorm.inference.runtime import ExportedDetector

GUIDE = Path(__file__).resolve().parents[2] / 'docs' / 'guides' / 'export.md'
ONNX, OPENVINO = (
    re.search(rf"```python\n([^`]*'detector{suffix}'.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    for suffix in ('.onnx', '.xml')
)
OPENED, FOUND = re.split(r'\n(?=outputs)', OPENVINO)  # replace the lines of ONNX with `session`
SNIPPETS = {
    '.onnx': ONNX,
    '.xml': re.sub(
        r'.*session\.run.*\n', lambda _: FOUND, re.sub(r'session = .*\n.*session.*\n', lambda _: OPENED, ONNX)
    ),
}


def write_means(path, **metadata):
    """Writes a file whose box has the means of the three channels and the height in `sizes`: it shows its inputs."""
    nodes = [
        helper.make_node('ReduceMean', ['images', 'axes'], ['means'], keepdims=0),
        helper.make_node('Cast', ['sizes'], ['sides'], to=TensorProto.FLOAT),
        helper.make_node('Slice', ['sides', 'zero', 'one', 'one'], ['height']),
        helper.make_node('Concat', ['means', 'height'], ['box'], axis=1),
        helper.make_node('Unsqueeze', ['box', 'one'], ['one_box']),
        helper.make_node('Concat', ['one_box', 'one_box'], ['boxes'], axis=1),
        helper.make_node('Identity', ['two_scores'], ['scores']),
        helper.make_node('Identity', ['two_labels'], ['labels']),
    ]
    arrays = dict(axes=[2, 3], zero=[0], one=[1], two_labels=[[1, 0]])
    values = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in arrays.items()]
    values.append(numpy_helper.from_array(np.array([[0.75, 0.25]], np.float32), 'two_scores'))
    info = helper.make_tensor_value_info
    inputs = [info('images', TensorProto.FLOAT, ['B', 3, 'H', 'W']), info('sizes', TensorProto.INT64, ['B', 2])]
    outputs = [
        info('boxes', TensorProto.FLOAT, ['B', 2, 4]),
        info('scores', TensorProto.FLOAT, ['B', 2]),
        info('labels', TensorProto.INT64, ['B', 2]),
    ]
    graph = helper.make_graph(nodes, 'means', inputs, outputs, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=10)
    add_metadata(model, **metadata)
    onnx.save(model, path)
    return path


def run(suffix, folder, monkeypatch):
    """Boxes, scores and names of the snippet with the files in a folder."""
    monkeypatch.chdir(folder)
    values = {}
    exec(SNIPPETS[suffix], values)
    keep = values['keep']
    return values['boxes'], values['scores'][keep], [values['classes'][i] for i in values['labels'][keep]]


@pytest.mark.parametrize(
    ('suffix', 'color', 'thresholds'),
    [
        slow('.onnx', 'RGB', None),
        ('.onnx', 'BGR', [0.2, 0.8]),
        slow('.xml', 'RGB', [0.2, 0.8]),
        slow('.xml', 'BGR', None),
    ],
)
def test_snippets_prepare_images_as_the_runtime(suffix, color, thresholds, tmp_path, monkeypatch, capsys):
    path = write_means(tmp_path / 'detector.onnx', color=color, thresholds=thresholds)
    score, name = (0.25, 'round') if thresholds else (0.75, 'square')
    if suffix == '.xml':
        write_openvino(path.read_bytes(), ExportedDetector(path)._session.texts, tmp_path / 'detector.xml')
    rng = np.random.default_rng(0)
    for size in [(51, 77), (77, 51)] if suffix == '.xml' else [(51, 77), (77, 51), (200, 301), (31, 33)]:
        image = rng.integers(0, 256, (*size, 3)) * [0.2, 0.5, 1]
        cv2.imwrite(str(tmp_path / 'image.jpg'), image.astype(np.uint8))
        boxes, scores, names = run(suffix, tmp_path, monkeypatch)
        (expected,) = ExportedDetector(path)([str(tmp_path / 'image.jpg')], 'best' if thresholds else 0.3)
        np.testing.assert_allclose(boxes, expected.boxes, rtol=1e-5)
        assert boxes[0, 2] / boxes[0, 0] > 1.5 if color == 'BGR' else boxes[0, 2] / boxes[0, 0] < 0.7
        assert (scores.tolist(), names) == ([score], [name])
    assert name in capsys.readouterr().out


def test_the_snippet_of_a_canvas_keeps_each_image_in_its_corner():
    (snippet,) = re.findall(r'```python\n(canvas = [^`]*)```', GUIDE.read_text())
    rng = np.random.default_rng(0)
    prepared = [rng.uniform(1, 255, (*size, 3)).astype(np.float32) for size in [(51, 77), (640, 3)]]
    values = dict(np=np, prepared=prepared)
    exec(snippet, values)
    images, sizes = values['inputs']['images'], values['inputs']['sizes']
    assert (images.shape, images.dtype, sizes.dtype) == ((2, 3, 640, 640), np.float32, np.int64)
    for image, (height, width), pixels in zip(images, sizes, prepared, strict=True):
        np.testing.assert_array_equal(image[:, :height, :width].transpose(1, 2, 0), pixels)
        assert np.count_nonzero(image) == pixels.size


@pytest.mark.slow
def test_snippets_find_what_a_detector_finds(tmp_path, monkeypatch):
    path = write(cfg := config(), build(cfg), tmp_path / 'detector.onnx')
    write_openvino(path.read_bytes(), ExportedDetector(path)._session.texts, tmp_path / 'detector.xml')
    cv2.imwrite(str(tmp_path / 'image.jpg'), np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8))
    expected = ExportedDetector(path)(tmp_path / 'image.jpg')
    assert len(expected) > 3
    for suffix in SNIPPETS:
        boxes, scores, names = run(suffix, tmp_path, monkeypatch)
        np.testing.assert_allclose(scores, expected.scores, atol=1e-5)
        np.testing.assert_allclose(boxes, expected.boxes, atol=1e-2)
        assert names == expected.class_names
        assert set(names) <= set(CLASSES)
