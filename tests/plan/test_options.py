"""Options of training: values that cannot be right are refused."""

import math
from dataclasses import fields
from pathlib import Path

import pytest

from tokennorm.base.messages import UserError
from tokennorm.config.paths import config as config_path
from tokennorm.plan.options import MODEL_NAMES, TrainOptions

DETECTOR = 'retinanet_pvt-mini-dtn_fpn'


@pytest.mark.parametrize('name', ['epochs', 'image_size', 'batch_size', 'patience', 'workers', 'freeze', 'seed', 'lr'])
@pytest.mark.parametrize('value', [math.nan, math.inf, -1, 10**30, True, 1.5])
def test_numbers_that_cannot_be_right_are_refused(name, value):
    if name == 'lr' and value in (10**30, True, 1.5):
        return
    with pytest.raises(UserError, match=f'--{name.replace("_", "-")}'):
        TrainOptions(DETECTOR, **{name: value})


@pytest.mark.parametrize('device', ['gpu', 'cuda:', 'cuda:x', 'mps:0', ''])
def test_devices_that_do_not_exist_are_refused(device):
    with pytest.raises(UserError, match='expected cpu, cuda or cuda:N'):
        TrainOptions(DETECTOR, device=device)


def test_every_model_name_has_its_configs():
    for names in MODEL_NAMES.values():
        for name in names:
            assert Path(config_path(name.format(''))).stem == name.format('')


def test_the_list_of_options_is_frozen():
    """A new option must be worth a line of --help and of docs/get_started/train.md, and is added here on purpose."""
    assert [field.name for field in fields(TrainOptions)] == [
        *('config', 'data', 'image_size', 'augment', 'workers', 'model', 'norm', 'stem', 'init', 'freeze', 'epochs'),
        *('lr', 'batch_size', 'seed', 'ema', 'patience', 'auto_scale_lr', 'resume', 'device', 'amp', 'launcher'),
        *('out', 'checkpoint_interval', 'log', 'allow', 'strict', 'cfg_options'),
    ]


def test_paths_begin_at_home(monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path))
    (tmp_path / 'data').mkdir()
    options = TrainOptions(data='~/data', out=Path('~/run'), init='none')
    assert (options.data, options.out, options.init) == (f'{tmp_path}/data', tmp_path / 'run', 'none')
