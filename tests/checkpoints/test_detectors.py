"""mmdet's published detectors in TokenNorm's: equal boxes and scores, other classes, and detectors by name."""

from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine import Config
from torch import nn

import tokennorm
from tests.helpers.cases import fast_first
from tests.helpers.configs import build_model
from tests.helpers.weights import randomize
from tokennorm.base.published import PUBLISHED
from tokennorm.checkpoints import Checkpoint, CheckpointError, convert_detector
from tokennorm.config.paths import config

# TokenNorm's config and a shallow `arch` for it, mmdet's config and arguments for the same depth.
PVT = dict(depths=[1, 1, 1, 1], num_heads=[1, 2, 5, 8], mlp_ratios=[8, 8, 4, 4], sr_ratios=[8, 4, 2, 1])
FAMILIES = {
    'PVT': (
        'retinanet_pvt-s_fpn_1x_coco',
        dict(PVT, embed_dims=[64, 128, 320, 512]),
        'pvt/retinanet_pvt-s_fpn_1x_coco',
        dict(num_layers=[1, 1, 1, 1]),
    ),
    'PVTv2': (
        'retinanet_pvtv2-b0_fpn_1x_coco',
        dict(PVT, embed_dims=[32, 64, 160, 256]),
        'pvt/retinanet_pvtv2-b0_fpn_1x_coco',
        dict(num_layers=[1, 1, 1, 1]),
    ),
    'Swin': (
        'mask-rcnn_swin-t-p4-w7_fpn_1x_coco',
        dict(depths=[2, 1, 1, 1], embed_dims=[96, 192, 384, 768], num_heads=[3, 6, 12, 24], mlp_ratios=[4, 4, 4, 4]),
        'swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco',
        dict(depths=[2, 1, 1, 1]),
    ),
}
CLASSES = [f'class {i}' for i in range(80)]


@cache
def detectors(family):
    """TokenNorm's detector and mmdet's, with random weights."""
    name, arch, mmdets, depths = FAMILIES[family]
    models = []
    for path, backbone in ((name, dict(arch=arch)), (f'mmdet::{mmdets}', depths)):
        cfg = Config.fromfile(config(path))
        cfg.model.backbone.update(backbone, init_cfg=None)
        model = build_model(cfg)
        model.test_cfg.get('rcnn', model.test_cfg).update(score_thr=0.0, max_per_img=10)
        model.test_cfg.get('rpn', model.test_cfg).update(nms_pre=100, max_per_img=50)
        models.append(model.eval())
    randomize(models[1].backbone, 0.02)
    for name, p in models[1].named_parameters():
        p.data *= 0.1 if 'retina_cls' in name else 1  # scores of less than 1
    return models


def published(path, model):
    """A file as mmdet's authors published it: torch's old format, and meta of mmdet 2."""
    meta = dict(CLASSES=tuple(CLASSES), mmdet_version='2.17.0', epoch=12, iter=87960, config='model = dict()')
    content = dict(meta=meta, state_dict=model.state_dict())
    torch.save(content, path, _use_new_zipfile_serialization=False)
    return path


def found(model, sizes):
    images = [torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes]
    samples = [DetDataSample(metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1.0, 1.0))) for size in sizes]
    with torch.no_grad():
        return [sample.pred_instances for sample in model.test_step(dict(inputs=images, data_samples=samples))]


@pytest.mark.parametrize('family', fast_first(FAMILIES, 'PVTv2'))
def test_boxes_and_scores_are_those_of_mmdet(family, tmp_path):
    """Also the masks; batches of 1 and 2, odd sizes."""
    ours, theirs = detectors(family)
    content = Checkpoint.read(published(tmp_path / 'mmdet.pth', theirs))
    assert content.dataset_meta['classes'] == tuple(CLASSES)
    converted, report = convert_detector(ours, content.state_dict, 'mmdet.pth')
    ours.load_state_dict(converted, strict=True)
    assert (report.missing, report.note) == ([], '')
    assert len(report.loaded) == len(ours.state_dict())
    for sizes in ([(97, 131)], [(64, 150), (129, 75)]):
        torch.manual_seed(3)
        actual = found(ours, sizes)
        torch.manual_seed(3)
        for one, other in zip(actual, found(theirs, sizes), strict=True):
            assert len(one) == len(other) >= 10
            assert other.scores.max() - other.scores.min() > 1e-3
            torch.testing.assert_close(one.scores, other.scores, rtol=0, atol=1e-4)
            torch.testing.assert_close(one.bboxes, other.bboxes, rtol=0, atol=1e-2)  # pixels
            assert torch.equal(one.labels, other.labels)
            if 'masks' in other:
                assert (one.masks != other.masks).float().mean() < 1e-4


@pytest.mark.parametrize('family', fast_first(FAMILIES, 'PVTv2'))
def test_norms_have_the_eps_of_mmdet(family):
    ours, theirs = ([m.eps for m in model.modules() if isinstance(m, nn.LayerNorm)] for model in detectors(family))
    assert Counter(ours) == Counter(theirs)
    assert set(ours) == {1e-5 if family == 'Swin' else 1e-6}


def test_another_eps_is_reported(tmp_path):
    _, theirs = detectors('PVTv2')
    cfg = Config.fromfile(config(FAMILIES['PVTv2'][0]))
    cfg.model.backbone.update(arch=FAMILIES['PVTv2'][1], init_cfg=None, norm_cfg=None)
    _, report = convert_detector(build_model(cfg), theirs.state_dict(), 'mmdet.pth')
    assert "eps 1e-06 in all norms, of which some have 1e-05 here: set model.backbone.norm_cfg=dict(type='LN'" in str(
        report
    )


def test_other_classes_get_new_heads(tmp_path):
    _, theirs = detectors('PVTv2')
    cfg = Config.fromfile(config(FAMILIES['PVTv2'][0]))
    cfg.model.backbone.update(arch=FAMILIES['PVTv2'][1], init_cfg=None)
    cfg.model.bbox_head.num_classes = 3
    model = build_model(cfg)
    heads = ['bbox_head.retina_cls.weight', 'bbox_head.retina_cls.bias']
    with pytest.raises(CheckpointError, match=r'2 of another shape: bbox_head.retina_cls.weight \(\(720, 256'):
        convert_detector(model, theirs.state_dict(), 'mmdet.pth')
    converted, report = convert_detector(model, theirs.state_dict(), 'mmdet.pth', new_heads=True)
    assert report.missing == report.unexpected == heads
    assert '2 missing, newly initialized: bbox_head.retina_cls.weight, bbox_head.retina_cls.bias' in str(report)
    assert set(model.state_dict()) - set(converted) == set(heads)
    assert torch.equal(converted['neck.fpn_convs.0.conv.weight'], theirs.neck.fpn_convs[0].conv.weight)
    incomplete = theirs.state_dict()
    del incomplete['backbone.layers.1.0.projection.weight']
    with pytest.raises(CheckpointError, match=r'1 missing: backbone.stages.1.patch_embed.proj.weight'):
        convert_detector(model, incomplete, 'mmdet.pth', new_heads=True)


def test_detector_with_dtn_from_one_with_layer_norm():
    cfg = Config.fromfile(config('retinanet_pvt-mini_fpn'))
    cfg.model.backbone.init_cfg = None
    source = build_model(cfg)
    randomize(source.backbone)
    models = {}
    for init in ('layer_norm', 'paper'):
        cfg.model.backbone.token_norm_cfg = dict(type='DTN', init=init)
        models[init] = build_model(cfg)
    converted, report = convert_detector(models['layer_norm'], source.state_dict(), 'ln.pth', new_heads=True)
    models['layer_norm'].load_state_dict(converted, strict=True)
    added = [key for key in converted if key.endswith(('mean_logit', 'var_logit', 'position'))]
    assert sorted(report.missing) == sorted(added) == sorted(converted.keys() - source.state_dict().keys())
    assert sorted(report.loaded) == sorted(source.state_dict())
    assert all(torch.equal(value, converted[key]) for key, value in source.state_dict().items())
    assert converted[added[0]].sigmoid().min() > 0.999 or added[0].endswith('position')
    for model, new_heads in ((models['layer_norm'], False), (models['paper'], True)):
        with pytest.raises(
            CheckpointError, match=rf'{len(added)} missing: backbone.stages.0.blocks.0.norm1.mean_logit'
        ):
            convert_detector(model, source.state_dict(), 'ln.pth', new_heads)


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """The path at which the file of `retinanet_pvt-t` is looked for."""
    monkeypatch.setenv('TORCH_HOME', str(tmp_path / 'torch'))
    path = tmp_path / 'torch' / 'hub' / 'checkpoints' / PUBLISHED['retinanet_pvt-t'].url.rpartition('/')[2]
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.slow
def test_published_detector_by_name(cached):
    """As the README's three lines, with random weights in the cached file."""
    cfg = Config.fromfile(config('mmdet::pvt/retinanet_pvt-t_fpn_1x_coco'))
    cfg.model.backbone.init_cfg = None
    model = build_model(cfg)
    randomize(model, 0.02)
    published(cached, model)
    detector = tokennorm.Detector('retinanet_pvt-t', device='cpu')
    assert detector.classes == tuple(CLASSES)
    assert len(detector(np.zeros((40, 60, 3), np.uint8), score_threshold=0.0)) > 0
