"""Schedules end with training, warm-ups are short, and the resulting learning rates are those of the schedulers."""

import math
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import DefaultSampler, InfiniteSampler
from mmengine.registry import PARAM_SCHEDULERS

from tokennorm.base.messages import UserError
from tokennorm.config.paths import config_files
from tokennorm.findings import Findings, judging
from tokennorm.plan.changes import Plan
from tokennorm.plan.options import TrainOptions
from tokennorm.plan.schedule import (
    batch_of_lr,
    built_schedule,
    fit_lr,
    fit_schedule,
    fit_to_training,
    images_per_step,
    scaled_lr,
    schedule_end,
)

ONE_X = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
COSINE = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=75),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=0, end=60, convert_to_iter_based=True),
]
IMAGENET = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', T_max=295, eta_min=1e-5, by_epoch=True, begin=5, end=300),
]
YOLOX = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=5e-4, begin=5, T_max=285, end=285, convert_to_iter_based=True),
    dict(type='ConstantLR', by_epoch=True, factor=1, begin=285, end=300),
]
RTMDET = [
    dict(type='LinearLR', start_factor=1e-5, by_epoch=False, begin=0, end=1000),
    dict(type='CosineAnnealingLR', eta_min=2e-4, begin=150, end=300, T_max=150, convert_to_iter_based=True),
]


def learning_rates(schedulers, iterations, epoch_length, lr=1.0):
    """The learning rate of each iteration."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    built = []
    for cfg in schedulers:
        cfg = dict(cfg)
        convert = cfg.pop('convert_to_iter_based', False)
        cls = PARAM_SCHEDULERS.get(cfg.pop('type'))
        make = cls.build_iter_from_epoch if convert else cls
        built.append(make(optimizer, **cfg, **(dict(epoch_length=epoch_length) if convert else {})))
    rates = []
    for i in range(iterations):
        rates.append(optimizer.param_groups[0]['lr'])
        for scheduler in built:
            if not scheduler.by_epoch or (i + 1) % epoch_length == 0:
                scheduler.step()
    return rates


@pytest.mark.parametrize(
    'schedule', [ONE_X, COSINE, IMAGENET, YOLOX, RTMDET], ids=['1x', 'cosine', 'imagenet', 'yolox', 'rtmdet']
)
@pytest.mark.parametrize(('epochs', 'epoch_length'), [(1, 13), (4, 300), (20, 13), (50, 13)])
def test_learning_rate_ends_at_a_tenth(schedule, epochs, epoch_length):
    iterations = epochs * epoch_length
    built = built_schedule(schedule, iterations, epoch_length)
    assert schedule_end(built, epoch_length) in (iterations, round(iterations * 285 / 300))
    rates = learning_rates(built, iterations, epoch_length)
    assert max(rates) > 0.8
    assert rates[-1] <= 0.1 * max(rates) * (1 + 1e-6)
    warm_up = min(epoch_length, int(0.05 * iterations))
    assert rates[0] == 1 if warm_up < 2 else rates[0] < 0.011
    assert rates.index(max(rates)) <= warm_up


def test_steps_and_warm_up_count_iterations():
    warm_up, steps = built_schedule(ONE_X, 24 * 1000, 1000)
    assert warm_up == ONE_X[0]  # 500 iterations are less than an epoch, and than 5%
    assert steps == ONE_X[1] | dict(by_epoch=False, milestones=[16000, 22000], end=24000)
    rates = learning_rates([built_schedule(ONE_X, 24 * 10, 10)[1]], 24 * 10, 10)
    assert rates[159:161] == pytest.approx([1, 0.1])
    assert rates[219:221] == pytest.approx([0.1, 0.01])
    warm_up, steps = built_schedule(ONE_X, 5 * 30, 30)
    assert warm_up == ONE_X[0] | dict(end=7)  # 5% of 150
    assert steps == ONE_X[1] | dict(by_epoch=False, milestones=[100, 138], end=150)
    (steps,) = built_schedule(ONE_X[1:], 3, 3)
    assert steps['milestones'] == [2, 2], 'the last iteration still has its rate'


def test_a_cosine_is_at_its_fraction_of_training():
    def places(recipe, iterations, epoch_length):
        return [(one['begin'], one['end'], one['by_epoch']) for one in built_schedule(recipe, iterations, epoch_length)]

    assert places(IMAGENET, 30 * 20, 20) == [(0, 20, False), (10, 600, False)]
    assert places(RTMDET, 30 * 20, 20) == [(0, 20, False), (300, 600, False)]
    assert places(YOLOX, 60 * 20, 20) == [(0, 20, False), (20, 1140, False)]
    kept = {key for one in built_schedule(YOLOX, 60, 20) for key in one}
    assert kept == {'type', 'by_epoch', 'begin', 'end', 'eta_min', 'start_factor'}


def test_a_schedule_of_the_same_length_has_the_same_rates():
    for recipe in (ONE_X, COSINE):
        recipe = [dict(recipe[0], end=30), recipe[1]]
        iterations = recipe[1]['end'] * 50
        assert learning_rates(built_schedule(recipe, iterations, 50), iterations, 50) == pytest.approx(
            learning_rates(recipe, iterations, 50)
        )


@pytest.mark.parametrize(
    'other',
    [
        [dict(type='PolyLR', by_epoch=False, begin=0, end=1000, eta_min=0.0, power=1.0)],
        [dict(type='OneCycleLR', by_epoch=False, eta_max=0.01, total_steps=120)],
        [dict(type='ReduceOnPlateauLR', by_epoch=True, begin=1, end=12)],
        [*COSINE, dict(type='CosineAnnealingMomentum', end=60)],
        [COSINE[1], COSINE[1]],
    ],
)
def test_other_schedules_are_not_built(other):
    assert built_schedule(other, 100, 10) is None


# One config of each schedule; the other configs of a folder inherit theirs.
OF_EACH_SCHEDULE = [
    path
    for path in config_files()
    if 'demo' in path.parts or path.stem.startswith(('retinanet_pvt-t_', 'mask-rcnn_vit-s_', 'pvt-tiny_'))
]


@pytest.mark.parametrize('path', OF_EACH_SCHEDULE, ids=lambda path: path.stem)
def test_schedules_of_all_configs_end_with_training(path):
    cfg = Config.fromfile(path)
    at_last_rate = 10 if path.stem.endswith('-release_in1k') else 0  # epochs after the cosine
    assert schedule_end(cfg.param_scheduler, 10**4) == (cfg.train_cfg.max_epochs - at_last_rate) * 10**4


@pytest.mark.parametrize(('optimizer', 'power'), [('SGD', 1), ('ASGD', 1), ('AdamW', 0.5), ('Adam', 0.5)])
def test_the_learning_rate_follows_the_batch(optimizer, power):
    lr, reason = scaled_lr(0.01, optimizer, base_batch=16, total_batch=2)
    assert lr == pytest.approx(0.01 * (1 / 8) ** power)
    assert 'a batch size of 16, this run has 2' in reason
    assert ('1706.02677' if power == 1 else '2205.10287') in reason
    assert scaled_lr(0.01, optimizer, 16, 16)[0] == 0.01
    assert math.isclose(scaled_lr(0.01, optimizer, 16, 64)[0], 0.01 * 4**power)


@pytest.mark.parametrize(
    'auto',
    [
        dict(base_batch_size=2),
        dict(base_batch_size=1, images_per_step=[1, 16]),
        dict(base_batch_size=16),
        dict(base_batch_size=4, images_per_step=[4, 16]),
        dict(base_batch_size=16, images_per_step=[8, 8]),  # edited
    ],
    ids=str,
)
def test_accumulated_batches_are_of_one_step(auto):
    loader = SimpleNamespace(batch_sampler=SimpleNamespace(batch_size=2))
    cfg = Config(dict(optim_wrapper=dict(accumulative_counts=8), auto_scale_lr=auto))
    cfg.train_dataloader = dict(batch_size=2)
    assert images_per_step(SimpleNamespace(train_dataloader=loader, cfg=cfg)) == batch_of_lr(cfg) == 16


@pytest.mark.parametrize(
    ('size', 'sampler', 'images'),
    [
        (32, DefaultSampler(range(12)), 12),
        (4, DefaultSampler(range(12)), 4),
        (32, InfiniteSampler(range(12)), 32),  # it repeats them
        ([2, 1], None, 2),  # a batch is from one dataset
        (None, DefaultSampler(range(12)), 0),
    ],
)
def test_the_images_of_a_step_are_those_of_its_batch(size, sampler, images):
    loader = SimpleNamespace(batch_sampler=SimpleNamespace(batch_size=size, sampler=sampler))
    assert images_per_step(SimpleNamespace(train_dataloader=loader, cfg={})) == images
    cfg = dict(auto_scale_lr=dict(base_batch_size=2), train_dataloader=dict(batch_size=size))
    assert batch_of_lr(cfg) == 2
    wrapper = dict(optimizer=dict(type='SGD', lr=0.1))
    cfg = Config(dict(cfg, optim_wrapper=wrapper))
    runner = SimpleNamespace(cfg=cfg, optim_wrapper=wrapper, param_schedulers=None, train_dataloader=loader)
    assert fit_lr(runner, Plan(cfg), by_batch=True).split(':')[0] == f'{0.05 * (images or 2):.4g}'
    assert cfg.auto_scale_lr.base_batch_size == (images or 2)


@pytest.mark.parametrize(
    ('auto', 'batch', 'by_batch', 'said'),
    [
        (dict(enable=True), 4, False, 'auto_scale_lr.base_batch_size=None'),
        (dict(enable=True, base_batch_size=0), 4, True, 'auto_scale_lr.base_batch_size=0'),
        (dict(base_batch_size='256'), 4, True, "auto_scale_lr.base_batch_size='256'"),
        (dict(enable=True, base_batch_size=8), [2, 1], False, 'train_dataloader.batch_size=[2, 1]'),
        (dict(enable=True, base_batch_size=8), None, False, 'train_dataloader.batch_size=None'),
    ],
)
def test_a_batch_that_is_not_a_number_is_named(auto, batch, by_batch, said):
    wrapper = dict(optimizer=dict(type='SGD', lr=0.1))
    cfg = Config(dict(optim_wrapper=wrapper, auto_scale_lr=auto, train_dataloader=dict(batch_size=batch)))
    runner = SimpleNamespace(cfg=cfg, optim_wrapper=wrapper, param_schedulers=None, train_dataloader=Loader(3))
    with pytest.raises(UserError, match='must be an integer above 0') as error:
        fit_lr(runner, Plan(cfg), by_batch=by_batch)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ('schedule', 'places'),
    [
        (dict(type='MultiStepLR', by_epoch=True, milestones=[8, 11]), dict(milestones=[160, 220])),
        (dict(type='CosineAnnealingLR', by_epoch=True, T_max=12), {}),
        (dict(type='CosineAnnealingLR', by_epoch=True, T_max=12, end=10**9), {}),
    ],
)
def test_schedules_without_an_end_are_for_the_length_of_their_recipe(schedule, places):
    """A recipe of 12 epochs, trained for 24 epochs of 10 iterations."""
    (built,) = built_schedule([schedule], 240, 10, length=120)
    assert built == dict(type=schedule['type'], by_epoch=False, begin=0, end=240, **places)


class Loader(list):
    """A loader of some batches of 2 images."""

    batch_sampler = SimpleNamespace(batch_size=2)

    def __init__(self, length):
        super().__init__(range(length))


def fitted(schedule, lr, train_cfg, iterations, made_for):
    """The schedule that a run of some iterations, 3 per epoch, has."""
    wrapper = dict(optimizer=dict(type='SGD', lr=0.01))
    cfg = Config(dict(optim_wrapper=wrapper, train_cfg=train_cfg))
    runner = SimpleNamespace(cfg=cfg, optim_wrapper=wrapper, param_schedulers=schedule, train_dataloader=Loader(3))
    runner.train_loop = SimpleNamespace(max_iters=iterations)
    plan = Plan(cfg)
    fit_schedule(runner, plan, made_for, builds=True)
    fit_lr(runner, plan, lr)
    assert runner.cfg.param_scheduler == runner.param_schedulers
    return runner.param_schedulers


@pytest.mark.parametrize(('batch', 'data', 'end'), [(4, None, 30), (2, None, 12), (2, '.', 30)])
def test_another_batch_or_other_data_is_another_length(batch, data, end):
    """The config that a run wrote counts the iterations of its batches."""
    cosine, loader = dict(type='CosineAnnealingLR', by_epoch=False, begin=0, end=12), dict(batch_size=2)
    cfg = Config(dict(train_cfg=dict(max_epochs=10), train_dataloader=loader, param_scheduler=[cosine]))
    plan = Plan(cfg)
    cfg.train_dataloader.batch_size = batch
    parts = dict(param_schedulers=[cosine], train_dataloader=Loader(3), optim_wrapper=None, hooks=[])
    runner = SimpleNamespace(cfg=cfg, train_loop=SimpleNamespace(max_iters=30), dump_config=lambda: None, **parts)
    with judging(Findings()) as findings:
        fit_to_training(runner, plan, TrainOptions('retinanet_pvt-mini_fpn', data))
    assert runner.param_schedulers[0]['end'] == end
    assert any('schedule ends at' in one.text for one in findings) == (end == 12)


@pytest.mark.parametrize(
    ('options', 'counts', 'rate', 'written'),
    [
        ({}, 1, 0.02, [2, 2]),
        ({'auto_scale_lr.base_batch_size': 8}, 1, 0.02, [8, 2]),
        ({}, 2, 0.04, [2, 4]),
    ],
)
def test_a_rate_is_scaled_once(options, counts, rate, written):
    """The config of a run says for which batch its rate is, also where the user said it of the recipe's rate."""
    wrapper = dict(optimizer=dict(type='SGD', lr=0.08), accumulative_counts=counts)
    cfg = Config(dict(optim_wrapper=wrapper, auto_scale_lr=dict(base_batch_size=8)))
    plan = Plan(cfg, options)
    runner = SimpleNamespace(cfg=cfg, optim_wrapper=cfg.optim_wrapper.to_dict(), train_dataloader=Loader(3))
    runner.param_schedulers = None
    assert fit_lr(runner, plan, by_batch=True).startswith(f'{rate}: 0.08 is for a batch size of 8')
    assert cfg.auto_scale_lr == dict(base_batch_size=written[0], images_per_step=written)
    assert batch_of_lr(cfg) == written[1]


def test_rates_in_a_schedule_are_scaled_and_the_highest_is_named():
    wrapper = dict(optimizer=dict(lr=0.01))
    first, second = dict(type='OneCycleLR'), dict(type='StepParamScheduler', param_name='lr')
    schedule = [dict(first, eta_max=0.02), dict(second, min_value=1e-4), dict(second, min_value=[0.1])]
    others = dict(type='CosineAnnealingMomentum', eta_min=0.85), dict(type='CosineAnnealingWeightDecay', eta_min=0.2)
    schedule += (momentum := [*others, dict(type='CosineParamScheduler', param_name='x', eta_min=1.0)])
    cfg = Config(dict(optim_wrapper=wrapper))
    runner = SimpleNamespace(cfg=cfg, optim_wrapper=wrapper, param_schedulers=schedule, train_dataloader=Loader(3))
    assert fit_lr(runner, Plan(cfg), 0.001) == '0.001: --lr; the schedule goes up to 0.002'
    rates = [dict(first, eta_max=0.002), dict(second, min_value=pytest.approx(1e-5)), dict(second, min_value=[0.1])]
    assert runner.param_schedulers == rates + momentum


def test_a_warm_up_alone_stays_short():
    warm_up = dict(type='LinearLR', start_factor=0.001, begin=0, end=4, by_epoch=False)
    assert schedule_end([warm_up], 10) is None
    assert built_schedule([warm_up], 600, 10) == [warm_up]
    assert built_schedule([warm_up | dict(end=40)], 600, 10) == [warm_up | dict(end=10)]


@pytest.mark.parametrize(('iterations', 'first'), [(20, 1.0), (39, 1.0), (40, 0.001)])
def test_a_warm_up_of_one_iteration_is_left_out(iterations, first):
    """mmengine's would never end: the rate of all of training would be that of the first iteration."""
    rates = learning_rates(built_schedule(ONE_X[:1], iterations, 10), iterations, 10)
    assert (rates[0], rates[-1]) == (pytest.approx(first), pytest.approx(1.0))


def test_a_sampler_without_a_length_is_refused():
    runner = SimpleNamespace(train_dataloader=iter(()))
    with pytest.raises(UserError, match='sampler has no length'):
        fit_to_training(runner, None, TrainOptions('retinanet_pvt-mini_fpn'))


def test_a_rate_of_zero_has_no_ratio_to_scale_by():
    schedule, wrapper = [dict(type='CosineAnnealingLR', eta_min=1e-5)], dict(optimizer=dict(type='SGD', lr=0.0))
    cfg = Config(dict(optim_wrapper=wrapper))
    cfg.auto_scale_lr = dict(base_batch_size=16)
    runner = SimpleNamespace(cfg=cfg, optim_wrapper=wrapper, param_schedulers=schedule, train_dataloader=Loader(3))
    assert fit_lr(runner, Plan(cfg), by_batch=True) == '0.0: as the config sets it'
    assert fit_lr(runner, Plan(cfg), 0.1) == '0.1: --lr'
    assert runner.param_schedulers == schedule
    assert wrapper['optimizer']['lr'] == 0.1


def test_a_single_scheduler_is_fitted_and_its_rates_follow_the_learning_rate():
    schedule = dict(type='CosineAnnealingLR', T_max=12, begin=0, end=12, eta_min=0.0005, by_epoch=True)
    loop = dict(max_epochs=4)
    (found,) = fitted(schedule, 1e-4, loop, 12, dict(max_epochs=12))
    assert (found['end'], found['eta_min']) == (12, pytest.approx(5e-6))
