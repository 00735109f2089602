"""Exported detectors find what mmdet finds, and refuse what they cannot do."""

import pytest
import torch
from mmdet.models.dense_heads import RetinaHead
from timm.layers import Conv2dSame
from torch import nn

from tests.helpers.compare import assert_near
from tests.helpers.exporting import (
    CLASSES,
    EXAMPLE_SIZES,
    NORM,
    SIZES,
    STEM,
    assert_same_detections,
    build,
    config,
    in_pytorch,
    write,
)
from tokennorm.base.messages import UserError
from tokennorm.export.whole_detector import WholeDetector, with_constant_padding
from tokennorm.export.writing import resize_rule, trace
from tokennorm.inference.runtime import ExportedDetector


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
    model = build(config('mask-rcnn'))
    model.roi_head.mask_roi_extractor.roi_layers[0].pool_mode = 'max'
    with pytest.raises(UserError, match="pool_mode='max' cannot be exported"):
        WholeDetector(model)


def test_a_prediction_without_a_trace_is_named():
    model = build(config(strides=(4,)))
    model.bbox_head.__class__ = OwnDecoding
    with pytest.raises(UserError, match='RetinaNet cannot be exported: its prediction cannot be traced: None'):
        trace(WholeDetector(model), dynamic=False)


@pytest.mark.parametrize(
    ('kernel', 'stride', 'dilation'), [(3, 2, 1), (5, 2, 1), ((5, 3), (1, 2), 1), (3, 2, 2), (1, 2, 1)]
)
def test_constant_padding_gives_equal_outputs(kernel, stride, dilation):
    model = nn.Sequential(nn.Sequential(Conv2dSame(4, 6, kernel, stride=stride, dilation=dilation)), nn.ReLU())
    constant = with_constant_padding(model)
    assert not any(isinstance(module, Conv2dSame) for module in constant.modules())
    assert isinstance(model[0][0], Conv2dSame)
    x = torch.randn(2, 4, 12, 16)
    assert_near('outputs', constant(x), model(x))
