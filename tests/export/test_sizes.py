"""Exported detectors at sides from 64 to 1344 pixels, with batches of 1 to 8, and on images without objects."""

import logging
import re

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F

from tests.helpers.exporting import PVT, build, config, matched, write
from tokennorm.export.whole_detector import WholeDetector
from tokennorm.export.writing import trace, write_openvino
from tokennorm.inference.runtime import ExportedDetector

pytestmark = pytest.mark.slow
GRID = PVT['pretrain_img_size']
SHAPES = [  # B, H, W
    (1, 64, 64),
    (1, 65, 70),
    (2, GRID, 160),
    (2, 90, GRID),
    (8, 97, 131),
    (1, 64, 1344),
    (1, 1344, 800),
    (5, 200, 128),
]


@pytest.fixture(scope='module', params=['retinanet', 'mask-rcnn'])
def exported(request, tmp_path_factory):
    """A detector in PyTorch, and its files."""
    logging.getLogger('torch.__trace').setLevel(logging.WARNING)
    torch.manual_seed(0)
    cfg = config(request.param)
    model = build(cfg)
    folder = tmp_path_factory.mktemp('export')
    path = write(cfg, model, folder / 'tiny.onnx')
    write_openvino(path.read_bytes(), ExportedDetector(path)._session.texts, folder / 'tiny.xml')
    return WholeDetector(model), folder


@pytest.mark.parametrize('suffix', ['.onnx', '.xml'])
def test_raw_outputs_are_those_of_pytorch(exported, suffix):
    detector, folder = exported
    session = ExportedDetector(folder / f'tiny{suffix}', threads=1)
    for shape in SHAPES:
        batch, *sides = shape
        images = torch.rand(batch, 3, *sides) * 255
        sizes = torch.tensor([[side - 7 * (i % 3) for side in sides] for i in range(batch)])
        with torch.no_grad():
            expected = dict(zip(detector.outputs, detector(images, sizes), strict=True))
        actual = session.run(dict(images=images.numpy(), sizes=sizes.numpy()))
        for i in range(batch):
            assert_same(shape, actual, expected, i)


def test_a_file_for_any_size_names_its_dimensions_and_loads_without_warnings(exported, capfd):
    _, folder = exported
    session = onnxruntime.InferenceSession(str(folder / 'tiny.onnx'))
    assert capfd.readouterr() == ('', '')
    assert [value.shape for value in session.get_inputs()] == [['batch', 3, 'height', 'width'], ['batch', 2]]
    for value in session.get_outputs():
        rest = dict(boxes=[4], masks=[28, 28]).get(value.name, [])
        assert value.shape == ['batch', 'detections', *rest]
    formulas = [
        dim.dim_param
        for value in onnx.load(folder / 'tiny.onnx').graph.value_info
        for dim in value.type.tensor_type.shape.dim
    ]
    assert not [text for text in formulas if re.search(r'\bs\d', text)]


def assert_same(shape, actual, expected, i):
    """Compares image i; detections whose scores differ by rounding may swap places."""
    assert (expected['scores'][i] > 0).sum() > 5, shape
    left, right = (
        [np.asarray(found[name][i]) for name in ('boxes', 'scores', 'labels')] for found in (actual, expected)
    )
    order = matched(right, left)
    for name, tolerance, a, b in zip(('boxes', 'scores', 'labels'), (2e-2, 2e-5, 0), left, right, strict=True):
        np.testing.assert_allclose(a[order], b, atol=tolerance, rtol=1e-5, err_msg=f'{name} of {shape}')


@pytest.mark.parametrize('kind', ['retinanet', 'mask-rcnn'])
def test_a_file_for_one_image_sees_no_canvas(kind, tmp_path):
    """Its detections are those of PyTorch for the image alone."""
    torch.manual_seed(0)
    cfg = config(kind)
    cfg.model.type = f'tokennorm.{cfg.model.type}'
    model = build(cfg)
    detector = WholeDetector(model)
    path = write(cfg, model, tmp_path / 'one.onnx', alone=True)
    write_openvino(path.read_bytes(), ExportedDetector(path)._session.texts, tmp_path / 'one.xml')
    image = torch.rand(1, 3, 90, 125) * 255
    canvas = F.pad(image, (0, 140, 0, 110), value=77.0)
    sizes = torch.tensor([[90, 125]])
    with torch.no_grad():
        expected = dict(zip(detector.outputs, detector(image, sizes), strict=True))
    for suffix in ('.onnx', '.xml'):
        session = ExportedDetector(tmp_path / f'one{suffix}', threads=1)
        for pixels in (image, canvas):
            actual = session.run(dict(images=pixels.numpy(), sizes=sizes.numpy()))
            assert_same(tuple(pixels.shape), actual, expected, 0)
        session.metadata['resize'] = None
        photos = [np.zeros((90, 125, 3), np.uint8)] * 2
        assert len(session(photos, batch_size=2)) == 2
        with pytest.raises(Exception, match=r'(?i)dim|shape'):
            session.run(dict(images=np.zeros((2, 3, 96, 128), np.float32), sizes=np.full((2, 2), 96)))


def test_level_of_stride_128():
    detector = WholeDetector(build(config(strides=(4, 8, 16, 32, 64, 128))))
    assert detector.smallest_side == 129
    trace(detector)  # raises if the graph does not take the sides from the smallest one on


@pytest.mark.parametrize('kind', ['retinanet', 'mask-rcnn'])
def test_images_without_objects(kind, tmp_path):
    cfg = config(kind)
    model = build(cfg)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(('retina_cls.bias', 'rpn_cls.bias')):
                p.fill_(-30.0)
            elif name.endswith('fc_cls.bias'):
                p[-1] = 30.0  # background
    detector = ExportedDetector(write(cfg, model, tmp_path / 'none.onnx', dynamic=False), threads=1)
    detector.metadata['resize'] = None
    for found in detector([np.zeros((300, 420, 3), np.uint8)] * 2, batch_size=2):
        assert found.boxes.shape == (0, 4)
        assert found.masks is None or found.masks.shape == (0, 300, 420)
    raw = detector.run(dict(images=np.zeros((2, 3, 300, 420), np.float32), sizes=np.zeros((2, 2), np.int64)))
    assert (raw['labels'] == -1).all()
    assert not raw['scores'].any()
    assert not raw['boxes'].any()
