"""Files that are written: formats, metadata, precision, and a size that the backbone fixes."""

import functools
import json
import logging
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from tests.helpers.exporting import CLASSES, PVT, build, config, write
from tokennorm.base.messages import UserError
from tokennorm.export.whole_detector import WholeDetector
from tokennorm.export.writing import (
    _cut_to_image,
    _name_dimensions,
    describe,
    export_detector,
    how_to_use,
    resize_rule,
    timed,
    trace,
    write_openvino,
)
from tokennorm.inference.runtime import ExportedDetector

GUIDE = Path(__file__).resolve().parents[2] / 'docs' / 'guides' / 'export.md'


@pytest.mark.parametrize('notebook', [False, True])
def test_a_step_is_shown_with_its_time(capsys, monkeypatch, notebook):
    monkeypatch.setattr('rich.console._is_jupyter', lambda: notebook)
    with timed('Tracing [the] detector'):
        assert capsys.readouterr().out == 'Tracing [the] detector ...\n'
    assert re.fullmatch(r'Tracing \[the\] detector 0:00:0\d\s*', capsys.readouterr().out)


@pytest.mark.slow
def test_float16_finds_the_same_in_fewer_bytes(tmp_path):
    """Of a float32 model, which is left as it is."""
    cfg = config('mask-rcnn', PVT | dict(arch=PVT['arch'] | dict(embed_dims=(64,), mlp_ratios=(8,))), channels=(64,))
    model = build(cfg)
    found, sizes = [], []
    image = np.random.default_rng(0).integers(0, 256, (300, 420, 3), dtype=np.uint8)
    for half in (False, True):
        path = write(cfg, model, tmp_path / f'{half}.onnx', half, dynamic=False)
        detector = ExportedDetector(path, threads=1)
        detector.metadata['resize'] = None
        found.append(detector([image, image], batch_size=2)[0])
        sizes.append(path.stat().st_size)
    expected, actual = found
    assert len(expected.scores) > 10
    np.testing.assert_allclose(actual.scores[:10], expected.scores[:10], atol=1e-2)
    np.testing.assert_allclose(actual.boxes[0], expected.boxes[0], atol=0.5)
    assert (actual.masks[0] == expected.masks[0]).mean() > 0.99
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert sizes[1] < 0.8 * sizes[0]


@pytest.mark.slow
def test_the_documented_snippet_runs_a_pt2_file(tmp_path, monkeypatch):
    cfg = config()
    detector = WholeDetector(build(cfg))
    metadata = describe(detector, cfg, dict(classes=CLASSES), 'tiny.py', '')
    export_detector(detector, metadata, tmp_path / 'detector.pt2')
    (snippet,) = re.findall(r'```python\n([^`]*torch\.export\.load.*?)```', GUIDE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    values = {}
    exec(snippet, values)
    assert values['classes'] == list(CLASSES)
    images, sizes = torch.rand(3, 3, 70, 99) * 255, torch.tensor([[70, 99], [60, 99], [70, 50]])
    with torch.no_grad():
        for actual, expected in zip(values['detect'](images, sizes), detector(images, sizes), strict=True):
            torch.testing.assert_close(actual, expected)


def test_an_openvino_model_has_the_metadata(model_file, tmp_path):
    write_openvino(model_file.read_bytes(), ExportedDetector(model_file)._session.texts, tmp_path / 'm.xml')
    detector = ExportedDetector(tmp_path / 'm.xml', threads=1)
    assert detector.metadata == ExportedDetector(model_file).metadata
    np.testing.assert_array_equal(detector([np.zeros((32, 48, 3), np.uint8)])[0].boxes, [[2, 3, 10, 15]])


def test_a_backbone_of_one_size_is_named():
    class Fixed(torch.nn.Module):
        alone, by_mmdet, canvas, least_side = False, False, None, 1

        def forward(self, images, sizes):
            assert images.shape[2] == 224, 'Input height'
            return images + sizes.sum()

    with pytest.raises(UserError, match=r'images of any size: Input height. If its backbone is a ViT of timm'):
        trace(Fixed())


@pytest.mark.parametrize(
    ('multiple', 'advice'), [(1, '; its data_preprocessor may need pad_size_divisor=32'), (32, '')]
)
def test_a_model_that_computes_small_images_in_another_way_is_named(multiple, advice):
    class Small(torch.nn.Module):
        alone, by_mmdet, canvas, least_side = False, False, None, 1

        def forward(self, images, sizes):
            return images + (sizes.sum() if images.shape[2] > 12 else 0)

    model = Small()
    model.multiple = multiple
    with pytest.raises(UserError, match=f'small ones are computed in another way{advice}$'):
        trace(model)


def test_a_file_says_that_normalization_is_inside(exported):
    """In its description, for who has the file only; who applies the mean and deviation of the file changes nothing."""
    model = onnx.load(exported[1])
    metadata = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert metadata['tokennorm.normalization'] == 'inside'
    assert (metadata['tokennorm.mean'], metadata['tokennorm.std']) == ([0, 0, 0], [1, 1, 1])
    assert model.doc_string == metadata['tokennorm.use']
    lines = model.doc_string.splitlines()
    assert [line.partition(': ')[0] for line in lines if ': ' in line] == [
        'images',
        'Normalization is inside',
        'sizes',
        'boxes',
        'scores',
        'labels',
    ]
    size = 'to the largest size within 96 x 64 or 64 x 96 pixels (bilinear).'
    assert lines[0].endswith(f'RGB, 0 to 255, each image resized in proportion, {size}')
    assert lines[-1] == 'labels: index into the 3 names of tokennorm.classes in the metadata, whose values are JSON.'


def test_a_file_has_one_rule_of_resizing():
    cfg = config()
    steps = cfg.test_dataloader.dataset.pipeline
    assert resize_rule(cfg) == dict(scale=[96, 64], keep_ratio=True)
    resize = steps.pop(1)
    assert resize_rule(cfg) is None
    steps[1:1] = [resize, dict(type='Resize', scale=(48, 32))]
    with pytest.raises(UserError, match=r'the test pipeline has Resize, .*; supported is one Resize'):
        resize_rule(cfg)


@pytest.mark.parametrize(
    ('changes', 'text'),
    [
        (dict(resize=None, color='BGR'), 'BGR, 0 to 255, each image as it is (bilinear)'),
        (dict(resize=dict(scale=[96, 64], keep_ratio=False)), 'resized to a width of 96 and a height of 64 pixels'),
        (dict(mask_threshold=0.5), 'non-maximum suppression; masks: probability of the object within each box.'),
        (dict(batch_size=1), 'sizes: int64 (1, 2), height and width of each image; the file cuts it out of a larger'),
    ],
    ids=['as it is', 'stretched', 'masks', 'one image'],
)
def test_the_description_follows_the_metadata(changes, text):
    content = dict(color='RGB', resize=dict(scale=[96, 64], keep_ratio=True), mask_threshold=None, classes=CLASSES)
    content['batch_size'] = None
    assert text in how_to_use(content | changes)
    assert text not in how_to_use(content)


def test_onnxruntime_loads_a_file_without_warnings(exported, capfd):
    onnxruntime.InferenceSession(str(exported[1]))
    assert capfd.readouterr() == ('', '')


def test_dynamic_dimensions_have_names():
    formula = 'Min(100, 9*(((s14 + 31)//32))*(((s5 + 31)//32)))'
    value = functools.partial(helper.make_tensor_value_info, elem_type=1)
    graph = helper.make_graph(
        [],
        'sizes',
        [value('images', shape=['s34', 3, 's14', 's5']), value('sizes', shape=['s34', 2])],
        [value('boxes', shape=['s34', formula, 4]), value('scores', shape=['s34', formula])],
        value_info=[value('inside', shape=['3*s34', 's140', '(s14 + 31)//32']), value('same', shape=[formula])],
    )
    _name_dimensions(graph)
    shapes = {
        one.name: [dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim]
        for one in (*graph.input, *graph.output, *graph.value_info)
    }
    assert shapes == dict(
        images=['batch', 3, 'height', 'width'],
        sizes=['batch', 2],
        boxes=['batch', 'detections', 4],
        scores=['batch', 'detections'],
        inside=['3*batch', 's140', '(height + 31)//32'],
        same=['detections'],
    )


@pytest.mark.slow
def test_the_graph_for_one_image_has_no_masks():
    logging.getLogger('torch.__trace').setLevel(logging.WARNING)
    masked_config, plain_config = config(strides=(4,)), config(strides=(4,))
    masked_config.model.type = 'tokennorm.RetinaNet'
    masked, plain = build(masked_config), build(plain_config)
    nodes = [
        len(trace(detector, dynamic=False).graph.nodes)
        for detector in (WholeDetector(masked), WholeDetector(masked, alone=True), WholeDetector(plain, alone=True))
    ]
    assert nodes[0] > nodes[1] == nodes[2]


def test_a_file_for_one_image_cuts_it_out_of_the_canvas(tmp_path):
    """A size of 0 is the whole side, and so is one beyond it."""
    graph = helper.make_graph(
        [helper.make_node('Identity', ['images'], ['boxes'])],
        'pixels',
        [
            helper.make_tensor_value_info('images', TensorProto.FLOAT, [1, 3, 'height', 'width']),
            helper.make_tensor_value_info('sizes', TensorProto.INT64, [1, 2]),
        ],
        [helper.make_tensor_value_info('boxes', TensorProto.FLOAT, [1, 3, 'cut_height', 'cut_width'])],
    )
    _cut_to_image(graph)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    canvas = np.random.default_rng(0).random((1, 3, 200, 260), np.float32)
    for size, (height, width) in {
        (64, 96): (64, 96),
        (65, 1): (65, 1),
        (0, 100): (200, 100),
        (190, 0): (190, 260),
        (200, 260): (200, 260),
        (999, 257): (200, 257),
    }.items():
        (cut,) = session.run(None, dict(images=canvas, sizes=np.array([size])))
        np.testing.assert_array_equal(cut, canvas[:, :, :height, :width])
