"""The state that exact resumption needs and mmengine does not save.

It consists of the random generators, accumulated gradients, the place in the data, and sizes of multi-scale training.
"""

import logging
from functools import partial
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dist import all_gather_object, all_reduce, get_rank, get_world_size
from mmengine.logging import print_log
from mmengine.runner import EpochBasedTrainLoop, Runner
from torch import Tensor, nn

from tokennorm.engine.distributed import unwrapped
from tokennorm.engine.resume.random_state import RandomState, set_random_state
from tokennorm.engine.resume.sampler import ResumableBatchSampler, seeded_samples
from tokennorm.registry import type_name

TrainingState = dict[str, Any]


def make_resumable(cfg: Config) -> None:
    """Sets the batch sampler that exact resumption needs, in a whole config for training."""
    loader = cfg.train_dataloader
    inner = loader.get('batch_sampler')
    batched = loader.get('batch_size') is not None
    if batched and (inner is None or type_name(inner) != 'ResumableBatchSampler'):
        loader['batch_sampler'] = dict(type='tokennorm.ResumableBatchSampler', batch_sampler=inner)
        batches = loader['batch_sampler'] if inner is None else loader['batch_sampler']['batch_sampler']
        if 'drop_last' in loader:
            batches['drop_last'] = loader.pop('drop_last')


def training_state(runner: Runner, randomness: RandomState, batches_of_epoch: int, validated: bool) -> TrainingState:
    """Returns the state after a training step. Every rank calls this with its own random state.

    `batches_of_epoch` of the epoch were trained on, 0 at its end. `validated` says whether the validation that is due
    after this step was done.
    """
    return dict(
        random_states=all_gather_object(randomness),
        gradients=_gradients(unwrapped(runner.model)),
        sampler_seed=getattr(_sampler(runner), 'seed', None),
        data=_data(runner),
        batches_of_epoch=batches_of_epoch,
        validated=validated,
        input_sizes={name: module._input_size for name, module in _multi_scale(unwrapped(runner.model))},
    )


def restart_epoch(runner: Runner, checkpoint: dict[str, Any]) -> None:
    """Moves a checkpoint within an epoch to its beginning if the data make other batches now.

    All iterations are then counted in batches of this run, as its length and its schedule are. Half of a step that
    accumulates batches is dropped.
    """
    state, meta = checkpoint.get('training_state'), checkpoint['meta']
    if state is not None and isinstance(runner.train_loop, EpochBasedTrainLoop) and _data(runner) != state['data']:
        checkpoint['meta'] = meta | dict(iter=meta['epoch'] * len(runner.train_dataloader), epoch_restarts=True)
        state['gradients'] = {}


def restore_training_state(runner: Runner, state: TrainingState | None) -> int:
    """Restores a `training_state`, in a runner that has resumed from the checkpoint with it.

    Changing the world size restarts the random streams. Changing the dataset size or batch size restarts the epoch.
    Both print a warning. None, of a checkpoint by mmengine's hook, only skips the epochs and iterations done. Returns
    the number of batches of the epoch that are skipped, without loading them, since they were trained on.
    """
    by_epoch, batches = isinstance(runner.train_loop, EpochBasedTrainLoop), 0
    if state is not None:
        model, sampler = unwrapped(runner.model), _sampler(runner)
        if state['sampler_seed'] is not None and hasattr(sampler, 'seed'):
            sampler.seed = state['sampler_seed']
        if len(state['random_states']) == get_world_size():
            set_random_state(state['random_states'][get_rank()])
        else:
            _warn(f'world size {get_world_size()} instead of {len(state["random_states"])}: random numbers restart')
        for name, gradient in state['gradients'].items():
            parameter = model.get_parameter(name)
            parameter.grad = gradient.to(parameter)
        for name, module in _multi_scale(model):
            if size := state['input_sizes'].get(name):
                module._input_size = tuple(size)
        if _data(runner) == state['data']:
            batches = state['batches_of_epoch'] if by_epoch else 0
        else:
            of_epochs = 'the epoch restarts' if state['batches_of_epoch'] else 'epochs have another length'
            result = of_epochs if by_epoch else 'some images repeat and some are left out'
            _warn(f'{_data(runner)} instead of {state["data"]}: {result}')
    batch_sampler = runner.train_dataloader.batch_sampler
    if not isinstance(batch_sampler, ResumableBatchSampler):
        return 0
    if by_epoch:
        batch_sampler.skip(batches, runner.epoch, first=runner.iter - batches)
    else:
        runner.train_loop.fast_forward_on_resume = True  # mmengine would load the batches that it skips
        runner.train_loop.dataloader_iterator._epoch = batch_sampler.skip(runner.iter)  # private in mmengine 0.10.12
    return batches


def seed_training_samples(runner: Runner) -> None:
    """Makes augmentation depend on the seed of the run and the number of the sample only.

    A dataset whose class has `__getitems__` stays as it is.
    """
    loader = runner.train_dataloader
    if isinstance(loader.batch_sampler, ResumableBatchSampler):
        seed = getattr(_sampler(runner), 'seed', None)
        if not hasattr(type(loader.dataset), '__getitems__'):
            seed = runner.seed if seed is None else seed
            loader.dataset.__getitems__ = partial(seeded_samples, loader.dataset, seed)
        loader.generator = torch.Generator()  # so that seeds of workers are not drawn from the global generator


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    """Gradients between two steps of a run that accumulates: their mean over the ranks, which the step would take."""
    names = {name for name, p in model.named_parameters() if p.grad is not None}
    anywhere, gradients = set().union(*all_gather_object(names)), {}
    for name, p in model.named_parameters():
        if name in anywhere:
            gradient = torch.zeros_like(p) if p.grad is None else p.grad.detach().clone()
            all_reduce(gradient, op='mean')
            gradients[name] = gradient.cpu()
    return gradients


def _multi_scale(model: nn.Module) -> list[tuple[str, Any]]:
    """mmdet's `BatchSyncRandomResize` layers, whose `_input_size` (private in mmdet 3.5.1) serves several batches."""
    return [(name, module) for name, module in model.named_modules() if hasattr(module, '_input_size')]


def _data(runner: Runner) -> str:
    """A description of what the place in an epoch depends on."""
    loader = runner.train_dataloader
    batch = getattr(loader.batch_sampler, 'batch_size', None) or 1
    return f'{len(loader.dataset)} samples in batches of {batch * get_world_size()}'


def _sampler(runner: Runner) -> Any:
    return getattr(runner.train_dataloader.batch_sampler, 'sampler', None)


def _warn(message: str) -> None:
    print_log(f'Resumed with {message}.', logger='current', level=logging.WARNING)
