"""INT8 files: what is quantized, how far detections move, and bad input in one line."""

import numpy as np
import onnx
import pytest
from PIL import Image

from tokennorm.export.int8 import _is_grouped, calibration_inputs, quantize
from tokennorm.export.writing import write_openvino
from tokennorm.inference.runtime import ExportedDetector

pytestmark = pytest.mark.slow


def batch_of_two(inputs):
    """As the graph is fixed to: 2 images of 300 x 420 pixels."""
    images = np.zeros((2, 3, 300, 420), np.float32)
    height, width = inputs['images'].shape[2:]
    images[:, :, :height, :width] = inputs['images']
    return dict(images=images, sizes=np.repeat(inputs['sizes'], 2, axis=0))


@pytest.fixture(scope='module')
def files(exported, tmp_path_factory):
    """A float32 file, its INT8 file, and inputs."""
    _, path = exported
    folder, images = tmp_path_factory.mktemp('int8'), []
    for i in range(3):
        images.append(folder / f'{i}.png')
        pixels = np.random.default_rng(i).integers(0, 256, (300, 420, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(images[-1])
    inputs = [batch_of_two(entry) for entry in calibration_inputs(path, images)]
    assert len(inputs) == 3
    (folder / 'int8.onnx').write_bytes(quantize(path, iter(inputs)))
    return path, folder / 'int8.onnx', inputs[0]


def test_weights_are_int8_and_products_of_activations_are_not(files):
    path, quantized, _ = files
    graph = onnx.load(quantized).graph
    producers = {name: node for node in graph.node for name in node.output}
    kinds = {'Conv': 0, 'MatMul': 0, 'Gemm': 0}
    for node in graph.node:
        if node.op_type in kinds and node.input[1] in producers:
            source = producers[node.input[1]]
            kinds[node.op_type] += source.op_type == 'DequantizeLinear' and source.input[0] not in producers
    before = [node for node in onnx.load(path).graph.node if node.op_type == 'Conv']
    assert kinds['Conv'] == len(before) > 0
    assert kinds['MatMul'] + kinds['Gemm'] >= 4
    products = {producers[node.input[1]].op_type for node in graph.node if node.op_type == 'MatMul'}
    assert products
    assert 'DequantizeLinear' not in products  # attention, DTN: the linear layers are Gemm here


def test_detections_stay_near_and_metadata_stay(files):
    path, quantized, inputs = files
    exact, fast = ExportedDetector(path, threads=1), ExportedDetector(quantized, threads=1)
    assert fast.metadata == exact.metadata
    want, got = exact.run(inputs)['scores'][:, :10], fast.run(inputs)['scores'][:, :10]
    assert 0 < np.abs(got - want).max() < 0.1


def test_an_openvino_model_is_that_of_onnxruntime_in_int8(files, tmp_path):
    import openvino

    path, quantized, inputs = files
    exact, expected = (ExportedDetector(file, threads=1) for file in (path, quantized))
    written = tmp_path / 'int8.xml'
    metadata = {entry.key: entry.value for entry in onnx.load(quantized).metadata_props}
    write_openvino(quantized.read_bytes(), metadata, written)
    fast = ExportedDetector(written, threads=1)
    assert fast.metadata == exact.metadata
    want, got = (detector.run(inputs)['scores'][:, :10] for detector in (expected, fast))
    np.testing.assert_allclose(got, want, atol=0.01)
    kinds = {'Convolution': [], 'MatMul': []}
    for node in openvino.Core().read_model(written).get_ordered_ops():
        if node.get_type_name() in kinds:
            origin = node.input(1).get_source_output().get_node()
            while origin.inputs():
                origin = origin.input(0).get_source_output().get_node()
            kinds[node.get_type_name()].append(origin.get_element_type() == openvino.Type.i8)
    assert all(kinds['Convolution'])
    assert kinds['MatMul'].count(True) >= 4
    assert kinds['MatMul'].count(False) > 0  # DTN


def test_grouped_convolutions_stay_float32():
    nodes = [onnx.helper.make_node('Conv', ['x', 'w'], ['y'], **one) for one in ({}, dict(group=1), dict(group=4))]
    assert [_is_grouped(node) for node in nodes] == [False, False, True]
