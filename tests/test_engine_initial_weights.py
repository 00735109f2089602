"""No training begins from missing weights."""

import pytest
import torch
from mmengine import Config

from tests.helpers.configs import ROOT
from tokennorm.checkpoints import CheckpointError
from tokennorm.engine.initial_weights import check_initial_weights

CONFIG = ROOT / 'pvt' / 'retinanet_pvt-t-dtn_fpn_1x_coco.py'


def test_missing_weights_stop_it_with_what_makes_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError) as error:
        check_initial_weights(Config.fromfile(CONFIG))
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
            check_initial_weights(cfg)
    torch.save(dict(state_dict={}), folder / 'epoch_3.pth')
    check_initial_weights(cfg)
    cfg.model.backbone.init_cfg = [dict(type='Pretrained', checkpoint=str(folder))]
    with pytest.raises(ValueError, match=r'init_cfg=.* must be dict'):
        check_initial_weights(cfg)
