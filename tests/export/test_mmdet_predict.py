"""Detectors whose heads decode one image: files find what mmdet finds, alone and on a canvas."""

import copy

import numpy as np
import pytest
import torch

from tests.helpers.cases import fast_first
from tests.helpers.exporting import MMDET, build, in_pytorch, matched, mmdet_config, predict_with_mmdet, write
from tokennorm.base.messages import UserError
from tokennorm.export.mmdet_predict import _FixedShapes, _suppress
from tokennorm.export.whole_detector import WholeDetector
from tokennorm.export.writing import canvas_of, write_openvino
from tokennorm.inference.runtime import ExportedDetector

EXPORTED = [name for name in MMDET if name != 'SSDlite']
SIZES = [(96, 128), (90, 70), (128, 101)]


def built(name):
    torch.manual_seed(0)
    cfg = mmdet_config(name)
    model = build(cfg)
    if name == 'YOLOX':  # else sides are up to 10**9 pixels, and classes tie at a score of 1
        for conv in (*model.bbox_head.multi_level_conv_reg, *model.bbox_head.multi_level_conv_cls):
            conv.weight.data *= 0.1
    return cfg, model


def assert_same(detector, cfg, model, size, on_canvas=0):
    """Compares the detections of a random image, on a canvas of so many more pixels along each side."""
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    detector = copy.copy(detector)
    detector.metadata = detector.metadata | dict(resize=None)
    inputs = detector.inputs_of([image])
    inputs['images'] = np.pad(inputs['images'], [(0, 0), (0, 0), (0, on_canvas), (0, on_canvas)], constant_values=33)
    outputs = {name: value[0] for name, value in detector.run(inputs).items()}
    actual = detector._detections(outputs, inputs['sizes'][0], size)
    (expected,) = predict_with_mmdet(model, [image], canvas_of(cfg))
    assert len(actual) == len(expected) > 5
    wanted = [getattr(expected, name).numpy() for name in ('bboxes', 'scores', 'labels')]
    order = matched(wanted, [actual.boxes, actual.scores, actual.labels])
    close = (abs(actual.boxes[order] - wanted[0]) < 2e-2).all(-1)
    close &= np.isclose(actual.scores[order], wanted[1], rtol=1e-7, atol=2e-5) & (actual.labels[order] == wanted[2])
    assert close.mean() > 0.99  # of random weights a few pairs overlap by just the threshold of NMS
    if 'masks' in expected:
        assert (actual.masks[order] == expected.masks.numpy())[close].mean() > 0.9995  # pixels at the threshold


@pytest.mark.parametrize('name', fast_first(EXPORTED, 'YOLOX', 'RTMDet-Ins', 'Cascade Mask R-CNN', 'DINO'))
def test_the_traced_module_agrees_with_mmdet(name):
    cfg, model = built(name)
    detector = in_pytorch(cfg, model)
    for size in SIZES:
        assert_same(detector, cfg, model, size)


@pytest.mark.slow
@pytest.mark.parametrize('name', EXPORTED)
def test_files_agree_with_mmdet_on_a_canvas(name, tmp_path):
    cfg, model = built(name)
    path = write(cfg, model, tmp_path / 'tiny.onnx')
    detectors = [ExportedDetector(path, threads=1)]
    write_openvino(path.read_bytes(), detectors[0]._session.texts, tmp_path / 'tiny.xml')
    detectors.append(ExportedDetector(tmp_path / 'tiny.xml', threads=1))
    for detector in detectors:
        for size in SIZES:
            for on_canvas in (0, 50):
                assert_same(detector, cfg, model, size, on_canvas)


def test_suppressed_boxes_repeat_the_best_one_without_a_score():
    boxes = torch.tensor([[0.0, 0, 9, 10], [0, 0, 10, 10], [50, 50, 60, 60], [20, 20, 30, 30]])
    scores = torch.tensor([0.8, 0.9, 0.7, 0.1])
    for count, expected in ((2, [1, 2]), (3, [1, 2, 1]), (6, [1, 2, 1, 1, 1, 1])):
        found, index = _suppress(boxes, scores, 0.5, lowest=0.2, count=count)
        assert index.tolist() == expected
        assert torch.equal(found[:, :4], boxes[index])
        assert found[:, 4].tolist() == pytest.approx([0.9, 0.7, *[0] * (count - 2)])
    found, index = _suppress(boxes, scores, 0.5, lowest=1.0, count=9)
    assert not found[:, 4].any()
    assert len(_suppress(boxes, scores, 0.5, lowest=0.0, count=None)[0]) == len(boxes)


def test_what_a_mask_selects_keeps_its_place():
    x = torch.tensor([[0.1, 0.6], [0.7, 0.2]])
    with _FixedShapes(spare=2):
        chosen, places = x[x > 0.5], torch.nonzero(x > 0.5)
        rows = torch.arange(4).reshape(2, 2)[torch.tensor([False, True])]
    assert chosen.tolist() == pytest.approx([0, 0.6, 0.7, 0])
    assert places.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert rows.tolist() == [[0, 0], [2, 3]]


def test_parts_that_cannot_be_traced_are_named():
    for name, key, value, message in (
        ('YOLOX', 'test_cfg.nms', dict(type='soft_nms', iou_threshold=0.5), 'YOLOX.*soft_nms'),
        ('RTMDet-Ins', 'test_cfg.min_bbox_size', 8, 'min_bbox_size, in pixels of the original image'),
        (
            'Cascade R-CNN',
            'roi_head.bbox_roi_extractor.roi_layer.pool_mode',
            'max',
            "pool_mode='max' cannot be exported",
        ),
    ):
        cfg = mmdet_config(name)
        cfg.merge_from_dict({f'model.{key}': value})
        with pytest.raises(UserError, match=message):
            WholeDetector(build(cfg))
    with pytest.raises(UserError, match='--fp16: YOLOX can be exported in float32 only'):
        WholeDetector(build(mmdet_config('YOLOX')), half=True)


def test_a_pad_after_the_resize_is_the_canvas():
    cfg = mmdet_config('YOLOX')
    assert canvas_of(cfg) == (128, 128, [114, 114, 114])
    pad = cfg.test_dataloader.dataset.pipeline[2]
    for change in (dict(pad_to_square=False, size_divisor=32), dict(padding_mode='edge')):
        other = copy.deepcopy(cfg)
        other.test_dataloader.dataset.pipeline[2] = pad | change
        with pytest.raises(UserError, match='supported is one Pad to a size'):
            canvas_of(other)
    cfg.test_dataloader.dataset.pipeline[2] = dict(type='Pad', size=(96, 64), pad_val=7)
    assert canvas_of(cfg) == (64, 96, [7])
