"""torch.compile, export, tracing and deterministic mode."""

import io

import pytest
import torch
from mmcv_cases import boxes, gradients, random, rois


def functions(ops):
    regions, offset = rois(6), random(2, 18, 8, 9, seed=1, grad=False)
    return {
        'roi_align': (lambda x: ops.roi_align(x, regions, 2, 0.08), random(2, 3, 8, 9)),
        'deform_conv': (lambda x: ops.deform_conv2d(x, offset, torch.ones(2, 3, 3, 3), 1, 1), random(2, 3, 8, 9)),
        'focal_loss': (lambda x: ops.sigmoid_focal_loss(x, torch.arange(6), 2.0, 0.25, None, 'none'), random(6, 4)),
        'carafe': (lambda x: ops.carafe(x, torch.ones(2, 9, 16, 18), 3, 1, 2), random(2, 3, 8, 9)),
        'psa_mask': (ops.PSAMask('collect', (1, 3)), random(2, 3, 8, 9)),
        'roi_align_rotated': (
            lambda x: ops.roi_align_rotated(x, torch.tensor([[0, 3, 3, 4, 2, 0.3]]), 2, 1.0), random(2, 3, 8, 9)
        ),
    }  # fmt: skip


@pytest.mark.parametrize(
    'name',
    [
        'roi_align',
        *(pytest.param(name, marks=pytest.mark.slow) for name in ('deform_conv', 'focal_loss', 'carafe', 'psa_mask')),
    ],
)
def test_compiled_gradients(ops, name):
    """torch.compile lost what is written into a given gradient: all were 0."""
    torch._dynamo.reset()
    function, x = functions(ops)[name]
    expected = gradients(function(x), x=x)
    result = gradients(torch.compile(function, backend='aot_eager')(x), x=x)
    for key, value in expected.items():
        torch.testing.assert_close(result[key], value)
    assert expected['grad_x'].abs().sum() > 0


@pytest.mark.skipif(torch.__version__.startswith('2.5.'), reason="it does not trace mmengine's wrapper of nms")
def test_full_graph_inference(ops):
    """One graph, which compiled operators do not allow."""
    torch._dynamo.reset()
    x, regions, b, scores = random(2, 3, 8, 9, grad=False), rois(6), boxes(30), random(30, seed=3, grad=False)

    def function(x, b, scores):
        return ops.roi_align(x, regions, 2, 0.08), ops.nms(b, scores, 0.5)[1]

    compiled_function = torch.compile(function, backend='eager', fullgraph=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):  # torch 2.5 and 2.7 need it
        results = compiled_function(x, b, scores)
    for result, expected in zip(results, function(x, b, scores), strict=True):
        assert torch.equal(result, expected)


def test_deterministic_mode(ops):
    torch.use_deterministic_algorithms(True)
    try:
        for name, (function, x) in functions(ops).items():
            assert torch.equal(*[gradients(function(x), x=x)['grad_x'] for _ in range(2)]), name
    finally:
        torch.use_deterministic_algorithms(False)


def test_onnx_export(ops):
    onnx = pytest.importorskip('onnx')

    class Model(torch.nn.Module):
        def forward(self, x, regions, b, scores):
            return ops.roi_align(x, regions, (2, 2), 0.08, 0, 'avg', True), ops.nms(b, scores, 0.5)[1]

    file = io.BytesIO()
    inputs = random(2, 3, 8, 9, grad=False), rois(6), boxes(30), random(30, seed=3, grad=False)
    torch.onnx.export(Model(), inputs, file, dynamo=False, opset_version=16)
    kinds = [node.op_type for node in onnx.load_from_string(file.getvalue()).graph.node]
    assert 'RoiAlign' in kinds
    assert 'NonMaxSuppression' in kinds


def test_meta_device(ops):
    """Shapes without data, for counting and export."""
    output = ops.roi_align(torch.empty(2, 3, 8, 9, device='meta'), torch.empty(6, 5, device='meta'), (2, 4))
    assert output.shape == (6, 3, 2, 4)
