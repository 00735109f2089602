"""Tiny detectors for tests of export, and the comparison of an exported file with mmdet."""

import copy
import json
from types import SimpleNamespace

import mmcv
import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.hub import get_config
from mmengine.registry import init_default_scope
from scipy.optimize import linear_sum_assignment

from tokennorm.config.tree import walk
from tokennorm.export.whole_detector import WholeDetector
from tokennorm.export.writing import canvas_of, describe, to_onnx, trace
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


DIMS = {256: 16, 128: 8, 2048: 16, 1024: 16, 80: 3}  # channels of mmdet's configs, classes, and those of tests
MMDET = {  # mmdet's config, and what makes it small
    'RTMDet': ('rtmdet/rtmdet_tiny_8xb32-300e_coco', dict(neck=[32, 64, 128], head=16)),
    'YOLOX': ('yolox/yolox_tiny_8xb8-300e_coco', dict(neck=[32, 64, 128], head=16)),
    'RTMDet-Ins': ('rtmdet/rtmdet-ins_tiny_8xb32-300e_coco', dict(neck=[32, 64, 128], head=16)),
    'Cascade R-CNN': ('cascade_rcnn/cascade-rcnn_r50_fpn_1x_coco', {}),
    'Cascade Mask R-CNN': ('cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco', {}),
    'DINO': ('dino/dino-4scale_r50_8xb2-12e_coco', {}),
    'Deformable DETR': ('deformable_detr/deformable-detr_r50_16xb2-50e_coco', {}),
    'DETR': ('detr/detr_r50_8xb2-150e_coco', {}),
    'SSDlite': ('ssd/ssdlite_mobilenetv2-scratch_8xb24-600e_coco', {}),
}


def mmdet_config(name, side=128):
    """A detector of mmdet, small enough for tests, with the test pipeline of its config for images of this side."""
    path, small = MMDET[name]
    cfg = get_config(f'mmdet::{path}.py')
    model = cfg.model
    for _, part in walk(model):
        part.pop('init_cfg', None)
    if small:
        model.backbone.update(widen_factor=0.125, deepen_factor=0.167)
        model.neck.update(in_channels=small['neck'], out_channels=small['head'])
        model.bbox_head.update(in_channels=small['head'], feat_channels=small['head'], num_classes=3, stacked_convs=1)
    elif name == 'SSDlite':
        model.bbox_head.num_classes = 3
    else:
        levels = len(model.neck.in_channels)
        arch = {key: value * levels for key, value in PVT['arch'].items()}
        model.backbone = PVT | dict(arch=arch | dict(sr_ratios=(4, 2, 1, 1)[:levels]))
        for _, part in walk(model):
            for key, value in part.items():
                if isinstance(value, int) and not isinstance(value, bool) and key != 'temperature':
                    part[key] = DIMS.get(value, value)
        model.neck.in_channels = [8] * levels
    if 'encoder' in model:
        model.num_queries, model.encoder.num_layers, model.decoder.num_layers = 20, 1, 2
        model.test_cfg.max_per_img = 20
        model.bbox_head.embed_dims = 16
        if model.neck.norm_cfg:
            model.neck.norm_cfg.num_groups = 4
    if 'rpn_head' in model:
        model.test_cfg.rpn.update(max_per_img=50)
    for step in cfg.test_dataloader.dataset.pipeline:
        if step.type in ('Resize', 'Pad'):
            step.update({key: (side, side) for key in ('scale', 'size') if key in step})
    return cfg


def build(cfg):
    """A detector whose random weights find objects of every class with distinct scores."""
    init_default_scope('mmdet')
    model = MODELS.build(cfg.model).eval()
    heads = [model.bbox_head] if hasattr(model, 'bbox_head') else [model.rpn_head, model.roi_head]
    if hasattr(model, 'decoder'):
        model.init_weights()
    with torch.no_grad():
        if not model.data_preprocessor._enable_normalize:
            next(model.backbone.parameters()).div_(100)
        for name, p in [pair for head in heads for pair in head.named_parameters()]:
            if name.endswith('weight') and 'norm' not in name:
                gain = 0.9 if 'mask_head' in name else 1.5 if '_cls.' in name else 0.6
                p.normal_(std=gain / p[0].numel() ** 0.5)
            elif '_cls.bias' in name:
                p.fill_(-1.0)
    return model


def in_pytorch(cfg, model):
    """The runtime with the traced module itself in place of a file."""
    whole = WholeDetector(model, canvas=canvas_of(cfg))

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
    detector = WholeDetector(model, half, alone, canvas_of(cfg))
    metadata = describe(detector, cfg, dict(classes=CLASSES), 'tiny.py', 'CC0')
    path.write_bytes(to_onnx(trace(detector, dynamic), detector, metadata))
    return path


def predict_with_mmdet(model, images, canvas=None):
    """mmdet's own predictions for images (H, W, 3), uint8 BGR, without resizing, in one batch, each on a canvas."""
    shapes = [image.shape[:2] for image in images]
    if canvas is not None:
        height, width, value = canvas
        images = [mmcv.impad(image, shape=(height, width), pad_val=tuple(value)) for image in images]
    metas = [
        dict(img_shape=i.shape[:2], ori_shape=shape, scale_factor=(1.0, 1.0))
        for i, shape in zip(images, shapes, strict=True)
    ]
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
