"""A resumed training run ends bit for bit like an uninterrupted one, wherever it was stopped; a toy model for speed."""

import pytest
import torch
from mmengine.runner import Runner

from tests.helpers.cases import fast_first, slow
from tests.helpers.checkpoints import assert_same, assert_same_weights
from tests.helpers.toy_training import (
    EPOCHS,
    ITERATIONS,
    NUM_SAMPLES,
    ToyData,
    amp_on_cpu,  # noqa: F401 - a fixture
    collect_garbage,  # noqa: F401 - a fixture
    train,
)
from tokennorm.checkpoints.locating import newest_checkpoint
from tokennorm.engine.runner import _load_checkpoint

ASPECT = dict(type='mmdet.AspectRatioBatchSampler')
CASES = {
    'epochs': dict(train_cfg=EPOCHS),
    'aspect': dict(train_cfg=EPOCHS, batch_sampler=ASPECT, interval=3, by_epoch=False),
    'workers': dict(train_cfg=EPOCHS, interval=4, by_epoch=False, workers=2),
    'accumulating': dict(train_cfg=EPOCHS, interval=1, by_epoch=False, accumulate=4),
    'iterations': dict(train_cfg=ITERATIONS, interval=3, by_epoch=False, sampler='InfiniteSampler'),
    'iterations, a worker': dict(
        train_cfg=ITERATIONS, interval=3, by_epoch=False, sampler='InfiniteSampler', workers=1
    ),
    'finite': dict(train_cfg=ITERATIONS, interval=5, by_epoch=False),
    'averaged': dict(train_cfg=EPOCHS, interval=3, by_epoch=False, average=True, save_best='acc'),
}


@pytest.mark.parametrize('name', fast_first(CASES, 'accumulating', 'iterations', 'averaged'))
def test_a_resumed_training_ends_with_the_same_weights(tmp_path, name):
    """Stopped five times: after an epoch, in its middle, before and after a checkpoint."""
    case = CASES[name]
    train(tmp_path / 'whole', **case)
    for iteration in (1, 5, 8, 9, 13):
        assert train(tmp_path / 'stopped', resume=True, iteration=iteration, **case) is None
    train(tmp_path / 'stopped', resume=True, **case)
    whole, resumed = (
        torch.load(newest_checkpoint(tmp_path / name), weights_only=False) for name in ('whole', 'stopped')
    )
    assert resumed['meta']['iter'] == whole['meta']['iter'] == (14 if case['train_cfg'] == ITERATIONS else 16)
    for part in ('state_dict', 'ema_state_dict')[: 2 if 'average' in case else 1]:
        assert_same(part, resumed[part], whole[part])


@pytest.mark.usefixtures('amp_on_cpu')
def test_mixed_precision_resumes_its_loss_scale(tmp_path):
    """mmengine's wrapper with a scaler for CPUs. The scale doubles every two steps, and gradients that are accumulated
    when the training stops have that of then in them."""
    wrapper = dict(type='AmpOptimWrapper', loss_scale=dict(init_scale=8.0, growth_interval=2))
    case = dict(train_cfg=EPOCHS, interval=1, by_epoch=False, accumulate=3, wrapper=wrapper)
    whole = train(tmp_path / 'whole', **case)
    for iteration in (8, 14):
        train(tmp_path / 'stopped', resume=True, iteration=iteration, **case)
    resumed = train(tmp_path / 'stopped', resume=True, **case)
    assert resumed.optim_wrapper.loss_scaler.state_dict() == whole.optim_wrapper.loss_scaler.state_dict()
    assert whole.optim_wrapper.loss_scaler.get_scale() == 8.0 * 2**3  # 5 steps of 3 batches, and one of the last
    assert_same_weights(resumed.model, whole.model)


@pytest.mark.usefixtures('quick_workers')
def test_augmentation_does_not_depend_on_num_workers(tmp_path):
    models = [train(tmp_path / str(workers), train_cfg=EPOCHS, workers=workers).model for workers in (0, 1, 2)]
    for model in models[1:]:
        assert_same_weights(model, models[0])


def test_a_resumed_epoch_loads_what_was_left_of_it_and_no_more(tmp_path):
    ToyData.drawn.clear()
    settings = dict(train_cfg=EPOCHS | dict(val_interval=9), interval=2, by_epoch=False)
    train(tmp_path / 'whole', **settings)
    whole = list(ToyData.drawn)
    assert len({draw[0] for draw in whole[:NUM_SAMPLES]}) == NUM_SAMPLES
    assert len({draw[1:] for draw in whole}) == len(whole), 'random numbers come again'
    train(tmp_path / 'stopped', iteration=7, **settings)
    ToyData.drawn.clear()
    train(tmp_path / 'stopped', resume=True, **settings)
    trained = NUM_SAMPLES + 2 * 3  # the checkpoint is that of iteration 6, and an epoch has 4
    last_validation = NUM_SAMPLES
    assert ToyData.drawn[:-last_validation] == whole[trained:-last_validation]


@pytest.mark.parametrize('name', ['epochs', 'iterations'])
def test_resume_from_mmengine_checkpoint(tmp_path, name):
    settings = CASES[name] | dict(workers=0, train_cfg=CASES[name]['train_cfg'] | dict(val_interval=99))
    ToyData.drawn.clear()
    train(tmp_path, iteration=13, **settings)
    whole = list(ToyData.drawn)
    path = newest_checkpoint(tmp_path)
    content = torch.load(path, weights_only=False)
    assert content['meta']['iter'] == 12
    del content['training_state']
    torch.save(content, path)
    ToyData.drawn.clear()
    train(tmp_path, resume=True, **settings)
    before = 3 * NUM_SAMPLES if name == 'epochs' else 12 * 3
    assert ToyData.drawn[: 2 * 3] == whole[before : before + 2 * 3]


def validations(runner):
    return next(runner.val_evaluator.metrics[0].values)


@pytest.mark.parametrize('by_epoch', [True, slow(False)])
def test_only_validation_after_the_checkpoint_is_repeated(tmp_path, by_epoch):
    """There are two, after epochs 2 and 4. What is saved as the best is saved after its validation."""
    settings = dict(train_cfg=EPOCHS, by_epoch=by_epoch, interval=1 if by_epoch else 4)
    train(tmp_path / 'cut off', validation=16, **settings)
    assert validations(train(tmp_path / 'cut off', resume=True, **settings)) == 1
    train(tmp_path / 'after', iteration=9, **settings)
    assert validations(train(tmp_path / 'after', resume=True, **settings)) == 2
    train(tmp_path / 'best', iteration=9, save_best='acc', **settings)
    assert validations(train(tmp_path / 'best', resume=True, save_best='acc', **settings)) == 1


@pytest.mark.parametrize(
    ('settings', 'stop', 'expected'),
    [
        (dict(train_cfg=EPOCHS | dict(max_epochs=3)), dict(validation=12), 1),  # the last epoch, which 2 do not divide
        (dict(train_cfg=EPOCHS | dict(val_begin=3)), dict(iteration=9), 1),  # none was due after epoch 2
        (
            dict(train_cfg=ITERATIONS, interval=4, by_epoch=False, sampler='InfiniteSampler'),
            dict(iteration=9),
            3,  # after 8, 12 and 14
        ),
    ],
)
def test_what_is_repeated_is_what_the_loop_validates(tmp_path, settings, stop, expected):
    train(tmp_path, **stop, **settings)
    assert validations(train(tmp_path, resume=True, **settings)) == expected


def test_reduce_on_plateau_schedule_resumes(tmp_path):
    """The learning rate falls after a validation without improvement; the checkpoint is of before it."""

    def plateau(cfg):
        cfg.param_scheduler = dict(type='ReduceOnPlateauLR', monitor='acc', rule='less', patience=1, by_epoch=True)
        cfg.train_cfg.val_interval = 1

    settings = dict(train_cfg=EPOCHS, prepare=plateau)
    whole = train(tmp_path / 'whole', **settings)
    train(tmp_path / 'stopped', iteration=9, **settings)
    resumed = train(tmp_path / 'stopped', resume=True, **settings)
    assert resumed.param_schedulers[0].state_dict() == whole.param_schedulers[0].state_dict()
    assert resumed.optim_wrapper.get_lr() == {'lr': [pytest.approx(0.001)]}


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        (dict(random_states=[None] * 2), 'world size 1 instead of 2: random numbers restart.'),
        (
            dict(data='12 samples in batches of 3'),
            '11 samples in batches of 3 instead of 12 samples in batches of 3: the epoch restarts.',
        ),
    ],
)
def test_changed_run_restarts_the_epoch_and_warns(tmp_path, monkeypatch, changed, message):
    settings = dict(train_cfg=EPOCHS, interval=3, by_epoch=False)
    ToyData.drawn.clear()
    train(tmp_path, iteration=7, **settings)
    second_epoch = [draw[0] for draw in ToyData.drawn[NUM_SAMPLES:]]
    said = []
    monkeypatch.setattr('tokennorm.engine.resume.training_state.print_log', lambda message, **_: said.append(message))
    content = torch.load(tmp_path / 'iter_6.pth', weights_only=False)
    content['training_state'] |= changed
    torch.save(content, tmp_path / 'iter_6.pth')
    ToyData.drawn.clear()
    train(tmp_path, resume=True, iteration=10, **settings)
    resumed = [draw[0] for draw in ToyData.drawn[:NUM_SAMPLES]]
    if 'data' in changed:
        assert sorted(resumed) == list(range(NUM_SAMPLES))
    else:
        assert resumed[:3] == second_epoch[6:9]
    assert said == [f'Resumed with {message}']


@pytest.mark.parametrize(('epochs', 'plateau'), [(1, False), (2, True), slow(1, True), slow(2, False)])
def test_other_batches_have_their_own_length_and_schedule(tmp_path, monkeypatch, epochs, plateau):
    """From batches of 3, in the first epoch or after it, to one batch of all 11 samples."""
    linear = dict(type='LinearLR', start_factor=1, end_factor=0, begin=0, end=12, by_epoch=False)
    by_metric = dict(type='ReduceOnPlateauLR', monitor='acc', rule='less', patience=9, by_epoch=True)

    def prepare(cfg, batch_size=3):
        cfg.param_scheduler = dict(by_metric if plateau else linear)
        cfg.train_cfg.val_interval = 1
        cfg.train_dataloader.batch_size = batch_size

    def larger(cfg):
        prepare(cfg, 11)
        if not plateau:
            cfg.param_scheduler.end = 3

    settings = dict(train_cfg=EPOCHS | dict(max_epochs=3), interval=1, by_epoch=False, accumulate=2)
    train(tmp_path, iteration=4 * epochs - 1, prepare=prepare, **settings)
    content = torch.load(newest_checkpoint(tmp_path), weights_only=False)
    content['training_state']['gradients'] = {'of batches that are repeated': torch.ones(1)}

    def load(runner, filename, **_):
        runner.load_checkpoint = load
        return _load_checkpoint(runner, content, {}, filename)

    monkeypatch.setattr(Runner, 'load_checkpoint', load)
    runner = train(tmp_path, resume=True, prepare=larger, **settings)
    assert (runner.iter, runner.epoch, runner.train_loop.max_iters) == (3, 3, 3)
    assert runner.optim_wrapper.get_lr()['lr'][0] == pytest.approx(0.01 if plateau else 0, abs=1e-9)
