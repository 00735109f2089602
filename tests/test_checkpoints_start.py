"""No training begins from weights that are not there, or from random ones in silence."""

import logging

import pytest
import torch
from mmengine import Config

from tests.test_backbones_pvt import ARCH
from tests.test_configs import ROOT
from tokennorm.backbones import PVT
from tokennorm.checkpoints import CheckpointError
from tokennorm.checkpoints.start import check_start

TWIN = ROOT / 'pvt' / 'retinanet_pvt-t-dtn_fpn_1x_coco.py'


def test_missing_weights_stop_it_with_what_makes_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError) as error:
        check_start(Config.fromfile(TWIN))
    for part in (
        'work_dirs/pvt-tiny-dtn_8xb128_in1k/epoch_300.pth is not there',
        'tools/dist_train.sh configs/imagenet/pvt-tiny-dtn_8xb128_in1k.py',
        'model.backbone.init_cfg.checkpoint=FILE',
        'model.backbone.init_cfg=None',
    ):
        assert part in str(error.value)


def test_a_random_start_is_said(caplog, monkeypatch):
    said = []
    monkeypatch.setattr('tokennorm.checkpoints.start.print_log', lambda text, level: said.append((text, level)))
    cfg = Config.fromfile(TWIN)
    cfg.model.backbone.init_cfg = None
    check_start(cfg)
    ((text, level),) = said
    assert 'random weights' in text
    assert level == logging.WARNING


def test_weights_of_the_whole_detector_need_none_of_the_backbone(tmp_path):
    cfg = Config.fromfile(TWIN)
    cfg.load_from = 'detector.pth'
    check_start(cfg)
    assert cfg.model.backbone.init_cfg is None
    cfg = Config.fromfile(TWIN)
    cfg.update(resume=True, work_dir=str(tmp_path))
    with pytest.raises(CheckpointError):
        check_start(cfg)  # nothing to resume from yet
    (tmp_path / 'last_checkpoint').write_text('epoch_1.pth')
    check_start(cfg)
    assert cfg.model.backbone.init_cfg is None


def test_a_pretraining_run_fills_the_backbone_of_a_detector(tmp_path):
    """A class token, its position and the norm at the output are left out; all else is equal."""
    kwargs = dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed'))
    classifier = PVT(ARCH, out_type='cls_token', pretrain_img_size=64, **kwargs)
    state_dict = {f'backbone.{key}': value for key, value in classifier.state_dict().items()}
    torch.save(dict(state_dict=state_dict | {'head.fc.weight': torch.ones(1)}), tmp_path / 'epoch_300.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'epoch_300.pth'))
    detector = PVT(ARCH, pretrain_img_size=64, init_cfg=init_cfg, **kwargs)
    detector.init_weights()
    last = len(ARCH['depths']) - 1
    positions = f'stages.{last}.pos_embed'
    expected = classifier.state_dict()
    assert torch.equal(detector.state_dict()[positions], expected[positions][:, 1:])
    for key, value in detector.state_dict().items():
        assert key == positions or torch.equal(value, expected[key]), key
