"""The learning rate and the schedule of a resumed run: those of its command, which its summary prints.

mmengine takes both from the checkpoint, whatever the config says.
"""

import warnings
from collections.abc import Mapping
from typing import Any

from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from tokennorm.findings import refuse

POSITION_KEYS = {
    'last_step',
    '_global_step',
    '_last_value',
    'base_values',
    'verbose',
}  # in a schedule, not its settings
POSITION_KEYS |= {'best', 'num_bad_epochs', 'cooldown_counter', 'rule_worse'}  # in one by validations


def follows_command(runner: Runner) -> bool:
    """Returns whether a resumed run can have the schedule of its command: one optimizer, no schedule by validations."""
    schedulers = runner.param_schedulers or []
    by_metric = not isinstance(schedulers, list) or any(getattr(one, 'need_val_args', False) for one in schedulers)
    return isinstance(runner.optim_wrapper, OptimWrapper) and not by_metric


def use_settings_of_run(runner: Runner, checkpoint: dict[str, Any]) -> list[str]:
    """Replaces settings of optimizer and schedulers in a checkpoint to resume, where the run has others.

    The new schedulers are stepped to the place of the checkpoint, so that training continues as if it had had them from
    the beginning. Schedules by validations continue from the rates of the checkpoint, with the new settings. Where
    nothing differs the checkpoint stays as it is. The runner's optimizer and schedulers must be built and not have
    stepped. Returns the names of the settings that differ.

    Raises:
        Refusal: for the checkpoint of another optimizer, or one with other groups of parameters.
    """
    if not isinstance(runner.optim_wrapper, OptimWrapper):
        return []
    groups, schedulers = runner.optim_wrapper.param_groups, runner.param_schedulers or []
    base = checkpoint['optimizer'].get('base_param_settings')  # where there are several groups, the last of `groups`
    saved = [*checkpoint['optimizer']['param_groups'], *([] if base is None else [base])]
    if len(groups) != len(saved) or (set(saved[0]) - set(groups[0]) and set(groups[0]) - set(saved[0])):
        settings = ', '.join(sorted(set(saved[0]) - {'params'}))
        here = f'{len(groups)} groups of {type(runner.optim_wrapper.optimizer).__name__} here'
        text = f'the checkpoint has {len(saved)} groups of parameters with the settings {settings}, unlike the {here}'
        refuse('other-optimizer', text, '--resume')
    scheduled = {one.param_name for one in schedulers}
    if not follows_command(runner):  # the rates so far are in the checkpoint only
        scheduled |= {f'initial_{name}' for name in scheduled}
    differing = {
        key
        for old, new in zip(saved, groups, strict=True)
        for key in (old.keys() & new.keys()) - scheduled - {'params'}
        if old[key] != new[key]
    }
    states = checkpoint.get('param_schedulers') or []
    epoch_was_restarted = checkpoint['meta'].get('epoch_restarts') and follows_command(runner)
    if epoch_was_restarted or [_settings(state) for state in states] != [
        _settings(one.state_dict()) for one in schedulers
    ]:
        differing.add('schedule')
    if not differing:
        return []
    kept = {'params'}
    if follows_command(runner):
        _step_to(schedulers, checkpoint['meta'], len(runner.train_dataloader))
        checkpoint['param_schedulers'] = [one.state_dict() for one in schedulers]
    else:
        kept |= scheduled
        for state, one in zip(states, schedulers, strict=False):
            state.update(_settings(one.state_dict()))
    for old, new in zip(saved, groups, strict=True):
        old.update({key: value for key, value in new.items() if key not in kept})
    return sorted(key.removeprefix('initial_') for key in differing)


def _settings(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in POSITION_KEYS}


def _step_to(schedulers: list[Any], meta: Mapping[str, Any], epoch_length: int) -> None:
    """Steps schedulers as mmengine's hook does, after each iteration and each epoch."""
    epoch, iteration = meta['epoch'], meta['iter']
    if not epoch * epoch_length <= iteration < (epoch + 1) * epoch_length:  # of a checkpoint by mmengine's hook
        epoch_length = max(1, iteration // max(1, epoch))
    ends = {epoch_length * (i + 1) for i in range(epoch)}
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # no step of the optimizer precedes them
        for done in range(1, iteration + 1):
            for one in schedulers:
                if not one.by_epoch or done in ends:
                    one.step()
