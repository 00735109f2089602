"""Epochs: the stages of a recipe follow its length, and training validates ten times."""

import copy

import pytest
from mmengine.config import Config

from tests.helpers.configs import small_config
from tokennorm.base.messages import UserError
from tokennorm.config.paths import config as config_path
from tokennorm.config.tree import walk
from tokennorm.plan import recipe
from tokennorm.plan.changes import Plan
from tokennorm.plan.epochs import set_epochs
from tokennorm.plan.options import TrainOptions

STAGES = [  # a part of a recipe of 300 epochs, where it is, and its values for 30, 2 and 1 epochs
    (
        'custom_hooks',
        [dict(type='PipelineSwitchHook', switch_epoch=280, switch_pipeline=[])],
        'switch_epoch',
        (28, 1, 0),
    ),
    ('custom_hooks', [dict(type='YOLOXModeSwitchHook', num_last_epochs=15)], 'num_last_epochs', (2, 1, 0)),
    ('custom_hooks', [dict(type='YOLOXModeSwitchHook')], 'num_last_epochs', (2, 1, 0)),  # by its default
    ('custom_hooks', [dict(type='EMAHook', begin_epoch=0)], 'begin_epoch', (0, 0, 0)),
    ('custom_hooks', [dict(type='Mine', stop_epoch=300)], 'stop_epoch', (30, 2, 1)),
    ('custom_hooks', [dict(type='Mine', stop_epoch=400, by_epoch=False)], 'stop_epoch', (400, 400, 400)),
    ('custom_hooks', [dict(type='Mine', by_epoch=True, interval=100)], 'interval', (100, 100, 100)),
    ('default_hooks', dict(checkpoint=dict(type='CheckpointHook', save_begin=150)), 'save_begin', (15, 1, 0)),
    ('model', dict(type='TOOD', train_cfg=dict(initial_epoch=100)), 'initial_epoch', (10, 1, 0)),
]


@pytest.mark.parametrize(('place', 'part', 'key', 'values'), STAGES)
def test_stages_of_a_recipe_follow_its_length(place, part, key, values):
    for epochs, value in zip((30, 2, 1), values, strict=True):
        loop = dict(max_epochs=300, val_begin=150, val_interval=10, dynamic_intervals=[(280, 1)])
        cfg = small_config(**{'train_cfg': loop, place: copy.deepcopy(part)})
        set_epochs(cfg, epochs, 300)
        found = [step for _, step in walk(cfg[place]) if key in step]
        assert [step[key] for step in found] == [value]
        assert cfg.train_cfg == dict(
            max_epochs=epochs,
            val_begin={30: 15, 2: 1, 1: 0}[epochs],
            val_interval=10,
            dynamic_intervals=[({30: 28, 2: 1, 1: 0}[epochs], 1)],
        )


def test_stages_follow_the_length():
    stages = [dict(action_epoch=0), dict(action_epoch=100), dict(action_epoch=200), dict(action_epoch=290)]
    cfg = small_config(train_cfg=dict(max_epochs=300), custom_hooks=[dict(type='SwitchRecipeHook', schedule=stages)])
    set_epochs(cfg, 5, 300)
    assert [one['action_epoch'] for one in cfg.custom_hooks[0].schedule] == [0, 2, 3, 4]
    with pytest.raises(UserError, match='counts iterations'):
        set_epochs(small_config(train_cfg=dict(max_iters=300)), 3, None)


@pytest.mark.parametrize(('epochs', 'interval'), [(60, 6), (12, 1), (3, 1), (200, 12)])
def test_training_validates_ten_times(epochs, interval):
    cfg = Config.fromfile(config_path('retinanet_pvt-mini_fpn_bccd'))
    cfg.train_cfg.val_interval = 12
    recipe.apply_options(Plan(cfg), TrainOptions('retinanet_pvt-mini_fpn_bccd', '.', epochs=epochs))
    assert (cfg.train_cfg.max_epochs, cfg.train_cfg.val_interval) == (epochs, interval)
