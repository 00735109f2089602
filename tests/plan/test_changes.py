"""`tokennorm.plan.Plan`: records of changes, and who may change what."""

import pytest
from mmengine.config import Config

from tokennorm.base.messages import UserError
from tokennorm.plan.changes import Plan


def config():
    return Config(
        dict(
            model=dict(head=dict(num_classes=80, weights=[dict(scale=1), dict(scale=2)])),
            train_cfg=dict(max_epochs=12),
            custom_hooks=[dict(type='A', interval=1)],
        )
    )


def records(plan, why):
    return {one.path: (one.before, one.value) for one in plan.changes if one.why == why}


def test_a_step_records_the_difference_and_keeps_what_the_user_sets(capsys):
    plan = Plan(config(), {'model.head.weights.1.scale': 7})
    with plan.step('--data: 3 classes'):
        head = plan.cfg.model.head
        head.num_classes, head.weights[0].scale, head.weights[1].scale = 3, 5, 5
    assert records(plan, '--data: 3 classes') == {
        'model.head.num_classes': (80, 3),
        'model.head.weights.0.scale': (1, 5),
    }
    assert [one.scale for one in plan.cfg.model.head.weights] == [5, 7]
    plan.finish()
    line = 'model.head.num_classes=3 (was 80), model.head.weights.0.scale=5 (was 1)'
    assert capsys.readouterr().out == f'--data: 3 classes: {line}\n'


@pytest.mark.parametrize('entry', ['train_cfg', 'train_cfg.max_epochs'])
def test_an_entry_that_the_user_has_set_stays(entry):
    plan = Plan(config(), {'train_cfg.max_epochs': 3})
    value = dict(max_epochs=5) if entry == 'train_cfg' else 5
    assert not plan.set(entry, value, '--epochs')
    assert plan.cfg.train_cfg.max_epochs == 3
    assert plan.users('train_cfg') == plan.users(entry) == ['train_cfg.max_epochs']
    assert Plan(config(), {'train_cfg': dict(max_epochs=3)}).users('train_cfg.max_epochs') == ['train_cfg.max_epochs']
    assert plan.users('train_cfg.max') == []  # a part of a name is not a part of the config
    other = Plan(config())
    assert other.set('train_cfg.max_epochs', 5, '--epochs')
    assert other.cfg.train_cfg.max_epochs == 5


def test_entries_of_parts_that_come_later_are_set_at_the_end():
    plan = Plan(config(), {'custom_hooks.1.interval': 9, 'default_hooks.logger.interval': 4})
    assert 'default_hooks' not in plan.cfg
    with plan.step('hooks', show=False):
        plan.cfg.custom_hooks.append(dict(type='B', interval=2))
        plan.cfg.default_hooks = dict(logger=dict(type='LoggerHook'))
    plan.finish()
    assert [hook['interval'] for hook in plan.cfg.custom_hooks] == [1, 9]
    assert plan.cfg.default_hooks == dict(logger=dict(type='LoggerHook', interval=4))
    with pytest.raises(UserError, match='--cfg-options: custom_hooks'):
        Plan(config(), {'custom_hooks.5.interval': 9}).finish()


def test_removed_and_new_entries_are_records_too(capsys):
    plan = Plan(config())
    with plan.step('all new'):
        del plan.cfg.model.head.weights
        plan.cfg.model['mask.head'] = [1, 2]  # a dot in a name
    with plan.step('once'):
        plan.cfg.train_cfg.max_epochs = 1
    with plan.step('twice'):
        plan.cfg.train_cfg.max_epochs = 2
    plan.finish()
    assert capsys.readouterr().out == (
        'all new: model.head.weights removed, model.mask.head=[1, 2]\ntwice: train_cfg.max_epochs=2 (was 1)\n'
    )


def test_the_recipe_stays_as_it_was():
    plan = Plan(config(), {'train_cfg.max_epochs': 3})
    with plan.step('x', show=False):
        plan.cfg.model.head.num_classes = 3
    assert plan.recipe == config()._cfg_dict.to_dict()


def test_what_is_changed_outside_of_decisions_stays():
    """The runner resets `resume` after it has read it."""
    plan = Plan(config(), {'resume': True, 'train_cfg.max_epochs': 3})
    plan.cfg.resume = False
    with plan.step('x', show=False):
        plan.cfg.train_cfg.max_epochs = 5
    assert (plan.cfg.resume, plan.cfg.train_cfg.max_epochs) == (False, 3)


def test_a_part_that_is_replaced_keeps_what_was_changed_in_it():
    cfg = Config(dict(model=dict(norm=dict(type='LN2d'), head=dict(classes=80), init='a', frozen=2, score=0.1)))
    plan = Plan(cfg, {'model.score': 0.3})
    with plan.step('data', show=False):
        cfg.model.head.classes = 3
    with plan.step('recipe', show=False):
        cfg.model.frozen = 1
    run = dict(norm=dict(type='GN', groups=32), head=dict(classes=2, old=True), frozen=0, score=0.2)
    plan.replace('model', run, 'the model is that of the run to resume', keep=[('model', 'init')])
    assert cfg.model.to_dict() == dict(
        norm=dict(type='GN', groups=32), head=dict(classes=3, old=True), init='a', frozen=1, score=0.3
    )
    (line,) = plan._lines()
    assert line.startswith(
        'the model is that of the run to resume: model.norm.type=GN (was LN2d), model.norm.groups=32'
    )
