"""Two processes over gloo: each resumes with random numbers of its own, and both stop where one has no finite loss."""

import itertools

import pytest
import torch
from torch import distributed as torch_dist

from tests.helpers.processes import end, in_processes, start
from tests.helpers.toy_training import EPOCHS, ToyModel, train
from tokennorm.engine.distributed import start_cpu_processes
from tokennorm.engine.hooks.non_finite import NonFiniteError
from tokennorm.engine.resume.training_state import _gradients


def distribute(cfg):
    cfg.launcher = 'pytorch'
    cfg.randomness.diff_rank_seed = True
    start_cpu_processes(cfg)


def train_and_resume(rank, folder):
    """One of the processes."""
    start(rank, folder)
    settings = dict(train_cfg=EPOCHS | dict(val_interval=9), interval=3, by_epoch=False, prepare=distribute)
    whole = train(f'{folder}/whole', **settings)
    draws = torch.rand(3)
    train(f'{folder}/stopped', iteration=5, **settings)
    resumed = train(f'{folder}/stopped', resume=True, **settings)
    assert torch.equal(torch.rand(3), draws)
    parameters = dict(resumed.model.named_parameters())
    for name, value in whole.model.named_parameters():
        assert torch.equal(value, parameters[name]), name
    both = [torch.empty(3) for _ in range(2)]
    torch_dist.all_gather(both, draws)
    assert not torch.equal(*both), 'the processes drew the same'
    check_accumulated_gradients(rank, ToyModel())
    end()


def check_accumulated_gradients(rank, model):
    """A checkpoint has their mean. The second process has none of the first parameter, and none has any of the rest."""
    first, second, *rest = dict(model.named_parameters())
    if rank == 0:
        model.get_parameter(first).grad = torch.full_like(model.get_parameter(first), 3.0)
    model.get_parameter(second).grad = torch.full_like(model.get_parameter(second), 1.0 + rank)
    assert rest
    gradients = _gradients(model)
    assert list(gradients) == [first, second]
    assert gradients[first].unique().tolist() == [1.5]
    assert gradients[second].unique().tolist() == [1.5]


def test_each_rank_resumes_its_own_random_numbers(tmp_path):
    in_processes(train_and_resume, tmp_path)


def train_to_the_stop(rank, folder):
    """One of the processes; in the second one the losses of iterations 2 and 4 are not finite."""
    start(rank, folder)
    forward, calls, kept = ToyModel.forward, itertools.count(1), {}

    def spoilt(self, inputs, mode='tensor'):
        kept['model'] = self
        losses = forward(self, inputs, mode)
        if mode == 'loss' and next(calls) in (3, 4) and rank == 1:
            losses['loss'] = losses['loss'] * float('nan')
        return losses

    def guarded(cfg):
        distribute(cfg)
        cfg.default_hooks.non_finite = dict(type='tokennorm.NonFiniteHook', max_occurrences=2)

    ToyModel.forward = spoilt
    with pytest.raises(NonFiniteError, match=r'iteration 4: the loss is not finite'):
        train(folder, train_cfg=EPOCHS, prepare=guarded)
    weights = torch.cat([p.detach().flatten() for p in kept['model'].parameters()])
    assert weights.isfinite().all(), 'a step was made with a gradient that is not finite'
    both = [torch.empty_like(weights) for _ in range(2)]
    torch_dist.all_gather(both, weights)
    assert torch.equal(*both)
    end()


@pytest.mark.slow
def test_processes_stop_together_where_one_has_no_finite_loss(tmp_path):
    in_processes(train_to_the_stop, tmp_path)
