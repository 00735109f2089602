"""A run that is resumed with other options has their learning rate and schedule from the first step to the last."""

import copy
from types import SimpleNamespace

import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.optim.scheduler import CosineAnnealingLR, LinearLR, MultiStepLR, ReduceOnPlateauParamScheduler

from tokennorm.base.messages import UserError
from tokennorm.engine.resume.resumed_schedule import use_settings_of_run

LENGTH = 5  # iterations per epoch


def steps(milestones=(4,), gamma=0.1):
    return lambda optimizer: [
        LinearLR(optimizer, start_factor=0.1, by_epoch=False, begin=0, end=3),
        MultiStepLR(optimizer, milestones=list(milestones), gamma=gamma, by_epoch=True, end=6),
    ]


def cosine(end=30):
    return lambda optimizer: [CosineAnnealingLR(optimizer, T_max=end, end=end, by_epoch=False, eta_min=1e-4)]


def none(optimizer):
    return []


class Run:
    """An optimizer with two groups of parameters and its schedulers, stepped as mmengine does."""

    def __init__(self, schedulers, lr=0.01, weight_decay=0.1, groups=True):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2))
        keys = dict(paramwise_cfg=dict(custom_keys={'0': dict(lr_mult=0.5)})) if groups else {}
        optimizer = dict(type='AdamW', lr=lr, weight_decay=weight_decay)
        wrapper = build_optim_wrapper(model, dict(optimizer=optimizer, **keys))
        self.runner = SimpleNamespace(
            optim_wrapper=wrapper, param_schedulers=schedulers(wrapper), train_dataloader=range(LENGTH)
        )
        self.iter = 0

    def train(self, iterations):
        """Returns the rates of every group at each step."""
        wrapper, rates = self.runner.optim_wrapper, []
        for _ in range(iterations):
            rates.append([group['lr'] for group in wrapper.param_groups])
            for group in wrapper.optimizer.param_groups:
                for one in group['params']:
                    one.grad = torch.ones_like(one)
            wrapper.optimizer.step()
            self.iter += 1
            for one in self.runner.param_schedulers:
                if not one.by_epoch or self.iter % LENGTH == 0:
                    one.step()
        return rates

    def checkpoint(self):
        return copy.deepcopy(
            dict(
                optimizer=self.runner.optim_wrapper.state_dict(),
                param_schedulers=[one.state_dict() for one in self.runner.param_schedulers],
                meta=dict(iter=self.iter, epoch=self.iter // LENGTH),
            )
        )

    def resume(self, checkpoint):
        use_settings_of_run(self.runner, checkpoint)
        self.runner.optim_wrapper.load_state_dict(checkpoint['optimizer'])
        for one, state in zip(self.runner.param_schedulers, checkpoint['param_schedulers'], strict=True):
            one.load_state_dict(state)
        self.iter = checkpoint['meta']['iter']


@pytest.mark.parametrize(
    ('before', 'after'),
    [
        (dict(schedulers=steps()), dict(schedulers=steps())),
        (dict(schedulers=cosine(), groups=False), dict(schedulers=cosine(), groups=False)),
        (dict(schedulers=steps()), dict(schedulers=steps(), lr=1e-5)),
        (dict(schedulers=cosine()), dict(schedulers=cosine(60))),  # --epochs
        (dict(schedulers=steps()), dict(schedulers=steps((2, 5)))),  # a milestone before the checkpoint
        (dict(schedulers=steps()), dict(schedulers=steps(gamma=0.5))),
        (dict(schedulers=steps()), dict(schedulers=cosine())),
        (dict(schedulers=none), dict(schedulers=none, lr=0.5)),
        (dict(schedulers=none), dict(schedulers=cosine())),
        (dict(schedulers=cosine()), dict(schedulers=cosine(), weight_decay=0.0)),
        (dict(schedulers=cosine(), lr=0.1), dict(schedulers=steps(), lr=0.2)),
    ],
)
@pytest.mark.parametrize('iterations', [7, 14, 15, 20])  # 14: the epoch ends with the next one
def test_a_resumed_run_has_the_settings_of_its_command(before, after, iterations):
    old = Run(**before)
    old.train(iterations)
    expected = Run(**after).train(30)[iterations:]
    resumed = Run(**after)
    checkpoint = old.checkpoint()
    resumed.resume(checkpoint)
    state, saved = resumed.runner.optim_wrapper.optimizer.state_dict()['state'], old.checkpoint()['optimizer']['state']
    assert all(torch.equal(state[i]['exp_avg'], saved[i]['exp_avg']) for i in saved)
    assert resumed.train(30 - iterations) == expected
    decay = {group['weight_decay'] for group in resumed.runner.optim_wrapper.optimizer.param_groups}
    assert decay == {after.get('weight_decay', 0.1)}


def test_an_epoch_that_restarts_has_the_rate_of_its_beginning():
    old, new = Run(cosine()), Run(cosine())
    old.train(15)
    checkpoint = old.checkpoint()
    checkpoint['meta'] = dict(iter=LENGTH, epoch=1, epoch_restarts=True)
    new.resume(checkpoint)
    assert new.train(30 - LENGTH) == Run(cosine()).train(30)[LENGTH:]


def test_epochs_of_a_checkpoint_by_mmengine_keep_their_length():
    """Four epochs of five iterations, continued in epochs of ten: the milestones are counted in epochs."""
    old, new = Run(steps((2, 4))), Run(steps((2, 4)))
    old.train(20)
    new.runner.train_dataloader = range(2 * LENGTH)
    new.resume(old.checkpoint())
    assert new.train(1) == Run(steps((2, 4))).train(21)[20:]


def test_a_schedule_by_validations_continues_from_the_checkpoint():
    def plateau(optimizer):
        return [ReduceOnPlateauParamScheduler(optimizer, 'lr', monitor='loss', factor=0.5, patience=0)]

    old, new = Run(plateau), Run(plateau, lr=1.0)
    for loss in [1, 2]:
        old.runner.param_schedulers[0].step(dict(loss=loss))
    new.resume(old.checkpoint())
    assert [run.runner.optim_wrapper.param_groups[-1]['lr'] for run in (old, new)] == [0.005, 0.005]


def test_the_checkpoint_of_another_optimizer_is_refused():
    old, new = Run(none), Run(none)
    new.runner.optim_wrapper.optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    for run in new, Run(none, groups=False):
        with pytest.raises(UserError, match='other-optimizer'):
            run.resume(old.checkpoint())
