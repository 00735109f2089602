"""What a training needs, beside what mmengine saves, to go on as if it had never stopped: random generators, gradients
that are being accumulated, the place in the data."""

import logging
from typing import Any

import torch
from mmengine.dist import all_gather_object, all_reduce, get_rank, get_world_size
from mmengine.logging import print_log
from mmengine.runner import EpochBasedTrainLoop, Runner
from torch import Tensor, nn

from tokennorm.training.randomness import RandomState, set_random_state
from tokennorm.training.resumable_sampler import ResumableBatchSampler, seed_samples

TrainingState = dict[str, Any]


def training_state(runner: Runner, randomness: RandomState) -> TrainingState:
    """The state after a training step. Every process calls this, with its own randomness, and gets that of all."""
    loader = runner.train_dataloader
    return dict(
        random_states=all_gather_object(randomness),
        gradients=_gradients(_unwrapped(runner)),
        sampler_seed=_sampler_seed(runner),
        batches_per_epoch=len(loader),
        batch_size=loader.batch_sampler.batch_size * get_world_size(),
    )


def restore_training_state(runner: Runner, state: TrainingState) -> None:
    """Goes back to a `training_state`, in a runner that has resumed from the checkpoint with it.

    With another number of processes the random generators start anew, and with another batch size so does the epoch,
    and a warning says so.
    """
    sampler = _sampler(runner)
    if state['sampler_seed'] is not None and hasattr(sampler, 'seed'):
        sampler.seed = state['sampler_seed']
    if len(state['random_states']) == get_world_size():
        set_random_state(state['random_states'][get_rank()])
    else:
        _warn(f'{len(state["random_states"])} processes before, {get_world_size()} now: other random numbers')
    model = _unwrapped(runner)
    parameters = dict(model.named_parameters())
    for name, gradient in state['gradients'].items():
        parameters[name].grad = gradient.to(parameters[name])
    _skip_batches(runner, state)


def seed_training_samples(runner: Runner) -> None:
    """Augmentation that depends on the seed of the training and the number of the sample alone."""
    if isinstance(runner.train_dataloader.batch_sampler, ResumableBatchSampler):
        seed = _sampler_seed(runner)
        seed_samples(runner.train_dataloader, runner.seed if seed is None else seed)


def number_batches(runner: Runner) -> None:
    """Has the samples of the next pass over the data numbered from the iteration that the training is at."""
    if isinstance(runner.train_dataloader.batch_sampler, ResumableBatchSampler):
        runner.train_dataloader.batch_sampler.drawn = runner.iter


def _skip_batches(runner: Runner, state: TrainingState) -> None:
    loop, loader = runner.train_loop, runner.train_dataloader
    if not isinstance(loader.batch_sampler, ResumableBatchSampler):
        return
    by_epoch = isinstance(loop, EpochBasedTrainLoop)
    batch_size = loader.batch_sampler.batch_size * get_world_size()
    if (len(loader), batch_size) != (state['batches_per_epoch'], state['batch_size']):
        if by_epoch:
            _warn(f'batches of {batch_size} rather than {state["batch_size"]}: the epoch starts anew')
            return
        _warn(f'batches of {batch_size} rather than {state["batch_size"]}: some images come twice and some not')
    if by_epoch:
        loader.batch_sampler.skip(runner.iter - runner.epoch * len(loader), runner.epoch)
        return
    go_on_with_the_data(runner)


def go_on_with_the_data(runner: Runner) -> None:
    """Has a training by iterations that has resumed leave out the batches before, without loading them."""
    loop, loader = runner.train_loop, runner.train_dataloader
    if isinstance(loop, EpochBasedTrainLoop) or not isinstance(loader.batch_sampler, ResumableBatchSampler):
        return
    loop.fast_forward_on_resume = True  # mmengine's own way would load what it skips
    loop.dataloader_iterator._epoch = loader.batch_sampler.skip(runner.iter)
    print_log(f'The data goes on at batch {runner.iter}, without loading those before', logger='current')


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    """There are some only between two steps of a training that accumulates: each process has its own, of which the mean
    is taken, as the step would take it."""
    parameters = dict(model.named_parameters())
    own = {name for name, p in parameters.items() if p.grad is not None}
    anywhere = set().union(*all_gather_object(own))
    names = [name for name in parameters if name in anywhere]
    gradients = {
        name: (parameters[name].grad if name in own else torch.zeros_like(parameters[name])).detach().clone()
        for name in names
    }
    for gradient in gradients.values():
        all_reduce(gradient, op='mean')
    return {name: gradient.cpu() for name, gradient in gradients.items()}


def _unwrapped(runner: Runner) -> nn.Module:
    return getattr(runner.model, 'module', runner.model)


def _sampler(runner: Runner) -> Any:
    return getattr(runner.train_dataloader.batch_sampler, 'sampler', None)


def _sampler_seed(runner: Runner) -> int | None:
    return getattr(_sampler(runner), 'seed', None)


def _warn(message: str) -> None:
    print_log(f'Resumed with {message}.', logger='current', level=logging.WARNING)
