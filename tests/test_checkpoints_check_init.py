"""No training begins from missing weights, or silently from random ones."""

import logging

import pytest
import torch
from mmengine import Config
from mmengine.runner import save_checkpoint

from tests.helpers.configs import ROOT
from tests.helpers.pvt import ARCH
from tests.helpers.weights import randomize
from tokennorm.backbones import PVT, PVTv2, Swin, ViT
from tokennorm.checkpoints import CheckpointError
from tokennorm.checkpoints.check_init import check_start

CONFIG = ROOT / 'pvt' / 'retinanet_pvt-t-dtn_fpn_1x_coco.py'


def test_missing_weights_stop_it_with_what_makes_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError) as error:
        check_start(Config.fromfile(CONFIG))
    for part in (
        'work_dirs/pvt-tiny-dtn_8xb128_in1k/epoch_300.pth not found',
        'tools/dist_train.sh configs/imagenet/pvt-tiny-dtn_8xb128_in1k.py',
        '--init FILE',
        '--init none',
    ):
        assert part in str(error.value)


def test_a_work_dir_is_named_like_its_checkpoints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cfg = Config.fromfile(CONFIG)
    folder = tmp_path / 'work_dirs' / 'pvt-tiny-dtn_8xb128_in1k'
    cfg.model.backbone.init_cfg.checkpoint = str(folder)
    for made, problem in ((False, 'in1k not found'), (True, r'in1k has no checkpoint: no best_\*.pth')):
        if made:
            folder.mkdir(parents=True)
        with pytest.raises(CheckpointError, match=f'(?s){problem}.*dist_train.sh configs/imagenet/pvt-tiny-dtn_'):
            check_start(cfg)
    torch.save(dict(state_dict={}), folder / 'epoch_3.pth')
    check_start(cfg)
    cfg.model.backbone.init_cfg = [dict(type='Pretrained', checkpoint=str(folder))]
    with pytest.raises(ValueError, match=r'init_cfg=.* must be dict'):
        check_start(cfg)


VIT_ROW = dict(embed_dims=24, depth=4, num_heads=3, mlp_ratio=2)
HAND_OVERS = {
    PVT: dict(arch=ARCH, pretrain_img_size=64),
    PVTv2: dict(arch=ARCH),
    Swin: dict(arch={key: value for key, value in ARCH.items() if key != 'sr_ratios'}),
    ViT: dict(arch=VIT_ROW, l_dtn=3, patch_size=8, pretrain_img_size=32),
}


@pytest.mark.parametrize('backbone', HAND_OVERS)
def test_pretraining_work_dir_initializes_a_detector_backbone(backbone, tmp_path):
    """As mmengine leaves it; a class token, its position, and the norm at the output have no place in a detector."""
    kwargs = dict(token_norm_cfg=dict(type='DTN'), stem_cfg=dict(type='DualPatchEmbed'), **HAND_OVERS[backbone])
    vector = 'cls_token' if backbone in (PVT, ViT) else 'avg_featmap'
    classifier = randomize(backbone(out_type=vector, **kwargs))
    state_dict = {f'backbone.{key}': value for key, value in classifier.state_dict().items()}
    save_checkpoint(dict(state_dict=state_dict | {'head.fc.weight': torch.ones(1)}), str(tmp_path / 'epoch_300.pth'))
    (tmp_path / 'epoch_299.pth').touch()
    (tmp_path / 'last_checkpoint').write_text('work_dirs/of_then/epoch_300.pth')
    detector = backbone(init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path)), **kwargs)
    detector.init_weights()
    expected = classifier.state_dict()
    for key, value in detector.state_dict().items():
        if key == 'stages.3.pos_embed':
            assert torch.equal(value, expected[key][:, 1:])
        elif backbone is Swin and key.startswith(tuple(f'stages.{i}.norm.' for i in range(4))):
            assert torch.equal(value, torch.full_like(value, key.endswith('weight')))
        else:
            assert torch.equal(value, expected[key]), key


def test_a_random_start_is_said(caplog, monkeypatch):
    said = []
    monkeypatch.setattr('tokennorm.checkpoints.check_init.print_log', lambda text, level: said.append((text, level)))
    cfg = Config.fromfile(CONFIG)
    cfg.model.backbone.init_cfg = None
    check_start(cfg)
    ((text, level),) = said
    assert 'initialized at random' in text
    assert level == logging.WARNING
