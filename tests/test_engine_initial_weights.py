"""Missing initial weights end with what makes them."""

import pytest
from mmengine import Config

from tests.helpers.configs import ROOT
from tests.helpers.pvt import small_pvt
from tokennorm.engine.initial_weights import initial_weights_help

CONFIG = ROOT / 'pvt' / 'retinanet_pvt-t-dtn_fpn_1x_coco.py'


def test_missing_weights_are_named_with_what_makes_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = Config.fromfile(CONFIG).model.backbone.init_cfg.checkpoint
    with pytest.raises(FileNotFoundError, match=r'in1k/epoch_300\.pth not found'):
        small_pvt(init_cfg=dict(type='Pretrained', checkpoint=checkpoint)).init_weights()
    for name in (checkpoint, checkpoint.rpartition('/')[0]):  # a work directory is named like its checkpoints
        text = initial_weights_help(name)
        for part in ('tools/dist_train.sh configs/imagenet/pvt-tiny-dtn_8xb128_in1k.py', '--init FILE', '--init none'):
            assert part in text
