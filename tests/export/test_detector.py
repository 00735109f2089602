"""Exported detectors find what mmdet finds, at sizes that were not traced, and refuse what they cannot do."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.models.dense_heads import RetinaHead
from mmdet.models.roi_heads import DoubleHeadRoIHead, DynamicRoIHead, MaskScoringRoIHead, PointRendRoIHead

from tests.helpers.exporting import (
    CLASSES,
    EXAMPLE_SIZES,
    NORM,
    PVT,
    SIZES,
    STEM,
    assert_same_detections,
    build,
    config,
    in_pytorch,
    write,
)
from tokennorm.export.detector import WholeDetector
from tokennorm.export.two_stage import check_roi_head
from tokennorm.export.writing import describe, export_detector, resize_rule
from tokennorm.inference.runtime import ExportedDetector
from tokennorm.messages import UserError

GUIDE = Path(__file__).resolve().parents[2] / 'docs' / 'guides' / 'export.md'


@pytest.mark.parametrize(
    ('kind', 'score_thr', 'divisor'),
    [('retinanet', 0.05, 32), ('retinanet', 0.82, 32), ('retinanet', 0.05, 1), ('mask-rcnn', 0.05, 32)],
)
def test_the_traced_module_agrees_with_mmdet(kind, score_thr, divisor):
    cfg = config(kind)
    cfg.model.data_preprocessor.pad_size_divisor = divisor
    (cfg.model.test_cfg.rcnn if kind == 'mask-rcnn' else cfg.model.test_cfg).score_thr = score_thr
    model = build(cfg)
    for sizes in SIZES:
        assert_same_detections(in_pytorch(cfg, model), model, sizes)


def test_onnx_file_agrees_with_mmdet_and_has_metadata(exported):
    model, path = exported
    detector = ExportedDetector(path, threads=1)
    assert_same_detections(detector, model, EXAMPLE_SIZES)
    assert detector.classes == CLASSES
    expected = dict(color='RGB', resize=dict(scale=[96, 64], keep_ratio=True), category_ids=[1, 2, 3], license='CC0')
    assert {key: detector.metadata[key] for key in expected} == expected


PYRAMID = dict(embed_dims=(8,), depths=(2,), num_heads=(2,), mlp_ratios=(1,))
VIT = dict(arch=dict(embed_dims=8, depth=2, num_heads=2, mlp_ratio=1), patch_size=8, window_size=3)
OTHERS = {  # backbone, channels, strides
    'PVTv2': (dict(type='PVTv2', arch=PYRAMID | dict(sr_ratios=(4,)), stem_cfg=STEM), 8, (4, 8)),
    'Swin': (dict(type='Swin', arch=PYRAMID, window_size=5, stem_cfg=STEM), 8, (4, 8)),
    'ViT': (dict(type='ViT', **VIT, stem_cfg=STEM), 8, (8, 16)),
    'ViT with relative positions': (dict(type='ViT', **VIT, rel_pos=8, stem_cfg=STEM), 8, (8, 16)),
    'TimmBackbone': (dict(type='TimmBackbone', model_name='pvt_v2_b0', out_indices=[0]), 32, (4, 8)),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', OTHERS)
def test_other_backbones_agree(name, tmp_path):
    backbone, channels, strides = OTHERS[name]
    backbone = backbone | dict(type=f'tokennorm.{backbone["type"]}', token_norm_cfg=NORM)
    cfg = config(backbone=backbone, channels=(channels,), strides=strides)
    model = build(cfg)
    detector = ExportedDetector(write(cfg, model, tmp_path / 'tiny.onnx'), threads=1)
    for sizes in [[(64, 96)], [(90, 125), (90, 125)], [(61, 203)], [(40, 40)] * 3, [(20, 33)]]:
        assert_same_detections(detector, model, sizes)


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


class OwnDecoding(RetinaHead):
    def _predict_by_feat_single(self, *args, **kwargs):
        return None


def test_unsupported_parts_are_named():
    cfg = config()
    cfg.model.test_cfg.nms = dict(type='soft_nms', iou_threshold=0.5)
    with pytest.raises(UserError, match='soft_nms'):
        WholeDetector(build(cfg))
    for key, value, message in (
        ('test_cfg.nms.max_num', 5, 'max_num'),
        ('test_cfg.max_per_img', -1, 'max_per_img=-1 cannot be exported'),
        ('test_cfg.min_bbox_size', 30, 'min_bbox_size, in pixels of the original image'),
        ('bbox_head.bbox_coder.clip_border', False, 'clip_border=False'),
    ):
        cfg = config()
        cfg.merge_from_dict({f'model.{key}': value})
        with pytest.raises(UserError, match=message):
            WholeDetector(build(cfg))
    for change in (dict(interpolation='nearest'), dict(backend='pillow')):
        cfg = config()
        cfg.test_dataloader.dataset.pipeline[1].update(change)
        with pytest.raises(UserError, match="supported is 'bilinear' with the backend 'cv2'"):
            resize_rule(cfg)
    model = build(config())
    model.bbox_head.__class__ = OwnDecoding
    with pytest.raises(UserError, match='OwnDecoding cannot be exported'):
        WholeDetector(model)
    model = build(config('mask-rcnn'))
    model.roi_head.mask_roi_extractor.roi_layers[0].pool_mode = 'max'
    with pytest.raises(UserError, match="pool_mode='max' cannot be exported"):
        WholeDetector(model)


def test_a_second_stage_that_predicts_in_its_own_way_is_refused():
    roi_head = build(config('mask-rcnn')).roi_head
    own = {MaskScoringRoIHead: 'predict_mask', PointRendRoIHead: 'predict_mask', DoubleHeadRoIHead: '_bbox_forward'}
    for kind, method in own.items():
        roi_head.__class__ = kind
        text = f'{kind.__name__} cannot be exported: it computes its result in its own way; .* with its {method}$'
        with pytest.raises(UserError, match=text):
            check_roi_head(roi_head)
    roi_head.__class__ = DynamicRoIHead  # another training only
    check_roi_head(roi_head)
