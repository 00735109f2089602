"""Tiny detectors for tests of export, and the comparison of an exported file with mmdet."""

import copy
import json
from types import SimpleNamespace

import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import init_default_scope
from scipy.optimize import linear_sum_assignment

from tokennorm.export.whole_detector import WholeDetector
from tokennorm.export.writing import describe, to_onnx, trace
from tokennorm.inference.runtime import ExportedDetector
from tokennorm.registry import MODELS

STEM, NORM = dict(type='DualPatchEmbed'), dict(type='DTN')
PVT = dict(
    type='tokennorm.PVT',
    arch=dict(embed_dims=(8,), depths=(1,), num_heads=(2,), mlp_ratios=(1,), sr_ratios=(4,)),
    token_norm_cfg=NORM,
    stem_cfg=STEM,
    pretrain_img_size=64,
)
CLASSES = ('round', 'square', 'long')
SIZES = [[(96, 128)], [(90, 70), (64, 101)]]  # batch 1, full; batch 2 with padding
EXAMPLE_SIZES = [(300, 390), (250, 420)]  # of a batch of the size that is traced


def config(kind='retinanet', backbone=PVT, channels=(8,), strides=(4, 8)):
    cfg = Config.fromfile(f'configs/_base_/models/{kind}_fpn.py')
    model = cfg.model
    model.backbone = backbone
    model.neck = dict(type='FPN', in_channels=list(channels), out_channels=8, num_outs=len(strides))
    if kind == 'retinanet':
        anchors = model.bbox_head.anchor_generator | dict(strides=list(strides))
        model.bbox_head.update(in_channels=8, feat_channels=8, stacked_convs=1, num_classes=3, anchor_generator=anchors)
    else:
        model.rpn_head.update(in_channels=8, feat_channels=8)
        model.rpn_head.anchor_generator.update(strides=list(strides))
        for part in ('bbox', 'mask'):
            model.roi_head[f'{part}_roi_extractor'].update(out_channels=8, featmap_strides=list(strides))
        model.roi_head.bbox_head.update(in_channels=8, fc_out_channels=16, num_classes=3)
        model.roi_head.mask_head.update(in_channels=8, conv_out_channels=8, num_convs=1, num_classes=3)
        model.test_cfg.rpn.update(max_per_img=50)
    cfg.test_dataloader = dict(
        dataset=dict(pipeline=[dict(type='LoadImageFromFile'), dict(type='Resize', scale=(96, 64), keep_ratio=True)])
    )
    return cfg


def build(cfg):
    """A detector whose random weights find objects of every class with distinct scores."""
    init_default_scope('mmdet')
    model = MODELS.build(cfg.model).eval()
    heads = [model.bbox_head] if hasattr(model, 'bbox_head') else [model.rpn_head, model.roi_head]
    with torch.no_grad():
        for name, p in [pair for head in heads for pair in head.named_parameters()]:
            if name.endswith('weight') and 'norm' not in name:
                gain = 0.9 if 'mask_head' in name else 1.5 if '_cls.' in name else 0.6
                p.normal_(std=gain / p[0].numel() ** 0.5)
            elif '_cls.bias' in name:
                p.fill_(-1.0)
    return model


def in_pytorch(cfg, model):
    """The runtime with the traced module itself in place of a file."""
    whole = WholeDetector(model)

    def run(inputs):
        with torch.no_grad():
            found = whole(*(torch.from_numpy(inputs[name]) for name in ('images', 'sizes')))
        return {name: value.numpy() for name, value in zip(whole.outputs, found, strict=True)}

    detector = ExportedDetector.__new__(ExportedDetector)
    detector._session = SimpleNamespace(run=run)
    texts = describe(whole, cfg, dict(classes=CLASSES), 'tiny.py', '')
    detector._use({key.removeprefix('tokennorm.'): json.loads(text) for key, text in texts.items()})
    return detector


def write(cfg, model, path, half=False, dynamic=True, alone=False):
    """Writes an ONNX file; without `dynamic` for batches of the size that is traced, with `alone` for one image."""
    detector = WholeDetector(model, half, alone)
    metadata = describe(detector, cfg, dict(classes=CLASSES), 'tiny.py', 'CC0')
    path.write_bytes(to_onnx(trace(detector, dynamic), detector, metadata))
    return path


def predict_with_mmdet(model, images):
    """mmdet's own predictions for images (H, W, 3), uint8 BGR, without resizing, in one batch."""
    metas = [dict(img_shape=i.shape[:2], ori_shape=i.shape[:2], scale_factor=(1.0, 1.0)) for i in images]
    samples = [DetDataSample(metainfo=meta) for meta in metas]
    inputs = [torch.from_numpy(np.ascontiguousarray(i.transpose(2, 0, 1))) for i in images]
    with torch.no_grad():
        return [sample.pred_instances for sample in model.test_step(dict(inputs=inputs, data_samples=samples))]


def matched(expected, actual):
    """The place of each expected detection among the actual ones, both boxes, scores and labels: rounding may swap."""
    boxes, scores, labels = (a[:, None] - b for a, b in zip(expected, actual, strict=True))
    return linear_sum_assignment(abs(boxes).max(-1) + 1e3 * abs(scores) + 1e3 * (labels != 0))[1]


def assert_same_detections(detector, model, sizes):
    """Compares detections of random images of these heights and widths, all in one batch, padded to the largest."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    detector = copy.copy(detector)
    detector.metadata = detector.metadata | dict(resize=None)
    inputs = detector.inputs_of(images)
    outputs = detector.run(inputs)
    for i, expected in enumerate(predict_with_mmdet(model, images)):
        values = {name: value[i] for name, value in outputs.items()}
        actual = detector._detections(values, inputs['sizes'][i], sizes[i])
        assert len(expected) > 10
        assert len(set(expected.labels.tolist())) > 1
        assert len(actual.scores) == len(expected)
        wanted = [getattr(expected, name).numpy() for name in ('bboxes', 'scores', 'labels')]
        order = matched(wanted, [actual.boxes, actual.scores, actual.labels])
        np.testing.assert_allclose(actual.scores[order], wanted[1], atol=2e-5)
        np.testing.assert_array_equal(actual.labels[order], wanted[2])
        np.testing.assert_allclose(actual.boxes[order], wanted[0], atol=2e-2)
        if 'masks' in expected:
            same = actual.masks[order] == expected.masks.numpy()
            assert same.mean() > 0.9995  # pixels at the threshold
