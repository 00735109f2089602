"""The learning rate and the schedule of a resumed run: those of its command, which its summary prints.

mmengine takes both from the checkpoint, whatever the config says.
"""

from typing import Any

from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from tokennorm.base.process import without_warnings
from tokennorm.engine.rules.model import OTHER_OPTIMIZER


def follows_command(runner: Runner) -> bool:
    """Returns whether a resumed run can have the schedule of its command: one optimizer, no schedule by validations."""
    schedulers = runner.param_schedulers or []
    by_metric = not isinstance(schedulers, list) or any(getattr(entry, 'need_val_args', False) for entry in schedulers)
    return isinstance(runner.optim_wrapper, OptimWrapper) and not by_metric


def use_settings_of_run(runner: Runner, checkpoint: dict[str, Any]) -> None:
    """Replaces the settings of optimizer and schedulers in a checkpoint to resume by those of the run.

    The schedulers are stepped to the place of the checkpoint, so that training continues as if it had had them from the
    beginning. The runner's optimizer and schedulers must be built and not have stepped. Schedules by validations and
    several optimizers continue from the checkpoint.

    Raises:
        Refusal: for the checkpoint of another optimizer, or one with other groups of parameters.
    """
    if not isinstance(runner.optim_wrapper, OptimWrapper):
        return
    groups = runner.optim_wrapper.param_groups
    base = checkpoint['optimizer'].get('base_param_settings')  # where there are several groups, the last of `groups`
    saved = [*checkpoint['optimizer']['param_groups'], *([] if base is None else [base])]
    if len(groups) != len(saved) or (set(saved[0]) - set(groups[0]) and set(groups[0]) - set(saved[0])):
        settings = ', '.join(sorted(set(saved[0]) - {'params'}))
        here = f'{len(groups)} groups of {type(runner.optim_wrapper.optimizer).__name__} here'
        text = f'the checkpoint has {len(saved)} groups of parameters with the settings {settings}, unlike the {here}'
        OTHER_OPTIMIZER.refuse('--resume', text)
    if follows_command(runner):
        schedulers = runner.param_schedulers or []
        _step_to(schedulers, checkpoint['meta']['epoch'], checkpoint['meta']['iter'], len(runner.train_dataloader))
        checkpoint['param_schedulers'] = [scheduler.state_dict() for scheduler in schedulers]
        for old, new in zip(saved, groups, strict=True):
            old.update({key: value for key, value in new.items() if key != 'params'})


def _step_to(schedulers: list[Any], epoch: int, iteration: int, epoch_length: int) -> None:
    """Steps schedulers as mmengine's hook does, after each iteration and each epoch."""
    if not epoch * epoch_length <= iteration < (epoch + 1) * epoch_length:  # of a checkpoint by mmengine's hook
        epoch_length = max(1, iteration // max(1, epoch))
    ends = {epoch_length * (i + 1) for i in range(epoch)}
    with without_warnings():  # no step of the optimizer precedes them
        for done in range(1, iteration + 1):
            for scheduler in schedulers:
                if not scheduler.by_epoch or done in ends:
                    scheduler.step()
