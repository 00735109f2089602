"""Exported detectors find what mmdet finds, at sizes that were not traced, and refuse what they cannot do."""

import json
import logging

import numpy as np
import pytest
import torch
from mmdet.models.dense_heads import RetinaHead
from mmengine.config import Config
from mmengine.registry import init_default_scope
from PIL import Image

from tokennorm.export.detector import WholeDetector
from tokennorm.export.metadata import describe
from tokennorm.export.runtime import Detector, ModelFileError
from tokennorm.export.writing import export_detector
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
SIZES = [[(64, 96)], [(90, 70), (64, 101)]]  # batch 1, full; batch 2 with padding


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


def write(cfg, model, path):
    detector = WholeDetector(model)
    export_detector(detector, describe(detector, cfg, dict(classes=CLASSES), 'tiny.py', 'CC0'), path)
    return Detector(path, threads=1)


def predict_with_mmdet(model, images):
    """mmdet's own predictions for images (H, W, 3), uint8 RGB, without resizing."""
    metas = [dict(img_shape=i.shape[:2], ori_shape=i.shape[:2], scale_factor=(1.0, 1.0)) for i in images]
    from mmdet.structures import DetDataSample

    samples = [DetDataSample(metainfo=meta) for meta in metas]
    inputs = [torch.from_numpy(np.ascontiguousarray(i[..., ::-1].transpose(2, 0, 1))) for i in images]
    with torch.no_grad():
        return [sample.pred_instances for sample in model.test_step(dict(inputs=inputs, data_samples=samples))]


def assert_same_detections(detector, model, sizes):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    detector.metadata['resize'] = None
    for actual, expected in zip(detector(images), predict_with_mmdet(model, images), strict=True):
        assert len(expected) > 10
        assert len(set(expected.labels.tolist())) > 1
        assert len(actual.scores) == len(expected)
        # Scores that differ by rounding may swap places.
        order = np.lexsort((actual.boxes[:, 0], -actual.scores.round(4)))
        expected_order = np.lexsort((expected.bboxes[:, 0].numpy(), -expected.scores.numpy().round(4)))
        np.testing.assert_allclose(actual.scores[order], expected.scores.numpy()[expected_order], atol=2e-5)
        np.testing.assert_array_equal(actual.labels[order], expected.labels.numpy()[expected_order])
        np.testing.assert_allclose(actual.boxes[order], expected.bboxes.numpy()[expected_order], atol=2e-2)
        if 'masks' in expected:
            same = actual.masks[order] == expected.masks.numpy()[expected_order]
            assert same.mean() > 0.9995  # pixels at the threshold


@pytest.fixture(scope='module')
def retinanet(tmp_path_factory):
    logging.getLogger('torch.__trace').setLevel(logging.WARNING)  # pytest would format thousands of records
    torch.manual_seed(0)
    cfg = config()
    model = build(cfg)
    path = tmp_path_factory.mktemp('export') / 'tiny.onnx'
    return model, path, write(cfg, model, path)


def test_retinanet_agrees_with_mmdet_at_other_sizes_and_batches(retinanet):
    model, _, detector = retinanet
    for sizes in SIZES:
        assert_same_detections(detector, model, sizes)


@pytest.mark.slow
def test_mask_rcnn_agrees_with_mmdet(tmp_path):
    cfg = config('mask-rcnn')
    model = build(cfg)
    detector = write(cfg, model, tmp_path / 'tiny.onnx')
    for sizes in SIZES:
        assert_same_detections(detector, model, sizes)


PYRAMID = dict(embed_dims=(8,), depths=(2,), num_heads=(2,), mlp_ratios=(1,))
OTHERS = {
    'PVTv2': (dict(arch=PYRAMID | dict(sr_ratios=(4,))), 8),
    'Swin': (dict(arch=PYRAMID, window_size=5), 8),
    'ViT': (dict(arch=dict(embed_dims=8, depth=2, num_heads=2, mlp_ratio=1), patch_size=8, window_size=3), 8),
    'ViT with relative positions': (
        dict(arch=dict(embed_dims=8, depth=2, num_heads=2, mlp_ratio=1), patch_size=8, window_size=3, rel_pos=8),
        8,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=pytest.mark.xfail(name == 'Swin', reason='its attention is not converted yet'))
        for name in OTHERS
    ],
)
def test_other_backbones_agree(name, tmp_path):
    arguments, channels = OTHERS[name]
    backbone = dict(type=f'tokennorm.{name.split()[0]}', token_norm_cfg=NORM, stem_cfg=STEM, **arguments)
    strides = (8, 16) if name.startswith('ViT') else (4, 8)
    cfg = config(backbone=backbone, channels=(channels,), strides=strides)
    model = build(cfg)
    detector = write(cfg, model, tmp_path / 'tiny.onnx')
    for sizes in SIZES:
        assert_same_detections(detector, model, sizes)


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['retinanet', 'mask-rcnn'])
def test_openvino_agrees(kind, tmp_path):
    pytest.importorskip('openvino')
    cfg = config(kind)
    model = build(cfg)
    detector = write(cfg, model, tmp_path / 'tiny.xml')
    for sizes in SIZES:
        assert_same_detections(detector, model, sizes)
    assert Detector(tmp_path / 'tiny.xml').classes == list(CLASSES)


@pytest.mark.slow
def test_pt2_agrees(tmp_path):
    cfg = config()
    model = build(cfg)
    detector = WholeDetector(model)
    export_detector(detector, describe(detector, cfg, dict(classes=CLASSES), 'tiny.py', ''), tmp_path / 'tiny.pt2')
    program = torch.export.load(tmp_path / 'tiny.pt2').module()
    images, sizes = torch.rand(3, 3, 70, 99) * 255, torch.tensor([[70, 99], [60, 99], [70, 50]])
    with torch.no_grad():
        for actual, expected in zip(program(images, sizes), detector(images, sizes), strict=True):
            torch.testing.assert_close(actual, expected)


def test_metadata_say_how_to_prepare_an_image(retinanet):
    detector = Detector(retinanet[1], threads=1)
    assert detector.classes == list(CLASSES)
    assert detector.metadata['color'] == 'RGB'
    assert detector.metadata['resize'] == dict(scale=[96, 64], keep_ratio=True)
    assert detector.metadata['category_ids'] == [1, 2, 3]
    assert detector.metadata['license'] == 'CC0'


def test_runtime_writes_coco_json(retinanet, tmp_path):
    from tokennorm.export.runtime import main

    Image.fromarray(np.random.default_rng(1).integers(0, 256, (80, 100, 3), dtype=np.uint8)).save(tmp_path / 'a.png')
    main([str(retinanet[1]), str(tmp_path), '--out', str(tmp_path / 'out')])
    content = json.loads((tmp_path / 'out' / 'detections.json').read_text())
    (found,) = Detector(retinanet[1], threads=1)([tmp_path / 'a.png'])
    assert [a['score'] for a in content['annotations']] == pytest.approx(found.scores.tolist(), abs=1e-5)
    assert content['images'] == [dict(id=1, file_name='a.png', width=100, height=80)]
    assert (tmp_path / 'out' / 'vis' / 'a.png').is_file()


class OwnDecoding(RetinaHead):
    def _predict_by_feat_single(self, *args, **kwargs):
        return None


def test_unsupported_parts_are_named():
    cfg = config()
    cfg.model.test_cfg.nms = dict(type='soft_nms', iou_threshold=0.5)
    with pytest.raises(ValueError, match='soft_nms'):
        WholeDetector(build(cfg))
    timm = dict(type='tokennorm.TimmBackbone', model_name='pvt_v2_b0', out_indices=[0], token_norm_cfg=NORM)
    with pytest.raises(ValueError, match='TimmBackbone with norms that'):
        WholeDetector(build(config(backbone=timm, channels=(32,))))
    model = build(config())
    model.bbox_head.__class__ = OwnDecoding
    with pytest.raises(ValueError, match='OwnDecoding cannot be exported'):
        WholeDetector(model)


def test_files_of_others_are_refused(tmp_path):
    import onnx
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info('x', TensorProto.FLOAT, [1])
    out = helper.make_tensor_value_info('y', TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node('Identity', ['x'], ['y'])], 'other', [value], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=10)
    onnx.save(model, tmp_path / 'other.onnx')
    with pytest.raises(ModelFileError, match='not written by'):
        Detector(tmp_path / 'other.onnx')
    (tmp_path / 'cut.onnx').write_bytes(b'\x08\x07')
    with pytest.raises(ModelFileError, match='cannot be loaded'):
        Detector(tmp_path / 'cut.onnx')
    with pytest.raises(ModelFileError, match='not found'):
        Detector(tmp_path / 'none.onnx')


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['out.tflite'], r'OUT out.tflite must end in .onnx, .pt2, .xml'),
        (['out.pt2', '--verify', '.'], r'--verify needs an .onnx or .xml file'),
        (['out.onnx', '--verify', 'nowhere'], r'annotations/val.json not found'),
    ],
)
def test_arguments_that_cannot_work_end_with_one_line(words, message):
    from tokennorm.cli.export import main

    with pytest.raises(SystemExit, match=message):
        main(['config.py', 'checkpoint.pth', *words])
