"""The state that exact resumption needs and mmengine does not save.

It consists of the random generators, accumulated gradients, the place in the data, and sizes of multi-scale training.
"""

import logging
from typing import Any

import torch
from mmengine.dist import all_gather_object, all_reduce, get_rank, get_world_size
from mmengine.logging import print_log
from mmengine.runner import EpochBasedTrainLoop, Runner
from torch import Tensor, nn

from tokennorm.engine.compat import input_sizes, set_input_sizes, set_passes
from tokennorm.engine.distributed import unwrapped
from tokennorm.engine.resume.random_state import RandomState, set_random_state
from tokennorm.engine.resume.sampler import ResumableBatchSampler, seed_samples

TrainingState = dict[str, Any]


def training_state(runner: Runner, randomness: RandomState, batches_of_epoch: int, validated: bool) -> TrainingState:
    """Returns the state after a training step. Every rank calls this with its own random state.

    Args:
        runner: Runner of the run.
        randomness: Random state of this rank.
        batches_of_epoch: Batches of the epoch that were trained on; 0 at its end.
        validated: Whether the validation that is due after this step was done.
    """
    return dict(
        random_states=all_gather_object(randomness),
        gradients=_gradients(unwrapped(runner.model)),
        sampler_seed=_sampler_seed(runner),
        data=_data(runner),
        batches_of_epoch=batches_of_epoch,
        validated=validated,
        input_sizes={name: list(size) for name, size in input_sizes(unwrapped(runner.model)).items()},
    )


def restore_training_state(runner: Runner, state: TrainingState) -> int:
    """Restores a `training_state`, in a runner that has resumed from the checkpoint with it.

    Changing the world size restarts the random streams. Changing the dataset size or batch size restarts the epoch.
    Both print a warning.

    Returns:
        The number of batches of the epoch that are skipped, since they were trained on.
    """
    sampler = _sampler(runner)
    if state['sampler_seed'] is not None and hasattr(sampler, 'seed'):
        sampler.seed = state['sampler_seed']
    if len(state['random_states']) == get_world_size():
        set_random_state(state['random_states'][get_rank()])
    else:
        _warn(f'world size {get_world_size()} instead of {len(state["random_states"])}: random numbers restart')
    parameters = dict(unwrapped(runner.model).named_parameters())
    for name, gradient in state['gradients'].items():
        parameters[name].grad = gradient.to(parameters[name])
    set_input_sizes(unwrapped(runner.model), state['input_sizes'])
    skipped = _batches_to_skip(runner, state)
    continue_data(runner, skipped)
    return skipped


def seed_training_samples(runner: Runner) -> None:
    """Makes augmentation depend on the seed of the run and the number of the sample only."""
    if isinstance(runner.train_dataloader.batch_sampler, ResumableBatchSampler):
        seed = _sampler_seed(runner)
        seed_samples(runner.train_dataloader, runner.seed if seed is None else seed)


def continue_data(runner: Runner, batches_of_epoch: int = 0) -> None:
    """Has a resumed run skip the batches that were trained on, without loading them."""
    loop, batch_sampler = runner.train_loop, runner.train_dataloader.batch_sampler
    if not isinstance(batch_sampler, ResumableBatchSampler):
        return
    if isinstance(loop, EpochBasedTrainLoop):
        batch_sampler.skip(batches_of_epoch, runner.epoch, first=runner.iter - batches_of_epoch)
        return
    loop.fast_forward_on_resume = True  # mmengine would load the batches that it skips
    set_passes(loop, batch_sampler.skip(runner.iter))
    print_log(f'The data continues at batch {runner.iter}; earlier batches are not loaded', logger='current')


def _batches_to_skip(runner: Runner, state: TrainingState) -> int:
    """Batches of the epoch; 0 if training counts iterations."""
    by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
    if not isinstance(runner.train_dataloader.batch_sampler, ResumableBatchSampler):
        return 0
    if _data(runner) != state['data']:
        result = 'the epoch restarts' if by_epoch else 'some images repeat and some are left out'
        _warn(f'{_data(runner)} instead of {state["data"]}: {result}')
        return 0
    return state['batches_of_epoch'] if by_epoch else 0


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    """Gradients between two steps of a run that accumulates: their mean over the ranks, which the step would take."""
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


def _data(runner: Runner) -> str:
    """A description of what the place in an epoch depends on."""
    loader = runner.train_dataloader
    return f'{len(loader.dataset)} samples in batches of {loader.batch_sampler.batch_size * get_world_size()}'


def _sampler(runner: Runner) -> Any:
    return getattr(runner.train_dataloader.batch_sampler, 'sampler', None)


def _sampler_seed(runner: Runner) -> int | None:
    return getattr(_sampler(runner), 'seed', None)


def _warn(message: str) -> None:
    print_log(f'Resumed with {message}.', logger='current', level=logging.WARNING)
