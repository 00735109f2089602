"""Checkpoints that survive a kill or a full disk and hold what an exact resumption needs."""

import os
from pathlib import Path
from typing import Any

from mmengine.dist import broadcast, is_main_process
from mmengine.fileio import LocalBackend, register_backend
from mmengine.hooks import CheckpointHook as UpstreamCheckpointHook
from mmengine.hooks import EarlyStoppingHook as UpstreamEarlyStoppingHook
from mmengine.runner import EpochBasedTrainLoop, Runner

from tokennorm.base.files import TEMPORARY, write_atomically
from tokennorm.checkpoints.locating import NOTE
from tokennorm.engine.distributed import unwrapped
from tokennorm.engine.resume.random_state import random_state, set_random_state
from tokennorm.engine.resume.training_state import restore_training_state, seed_training_samples, training_state
from tokennorm.registry import HOOKS

ATOMIC = 'tokennorm.atomic'  # mmengine's name of the file backend


class AtomicBackend(LocalBackend):
    """mmengine's files on a local disk (`backend_args=dict(backend=ATOMIC, outdated=[])`).

    `put` writes in one step, and then removes the files that `remove` named since the last one, in the same directory
    only: a checkpoint that was resumed from may name files of the directory that this one is a copy of.
    """

    def __init__(self, outdated: list[str]) -> None:
        self.outdated = outdated  # one list for a run, since mmengine makes new backends

    def put(self, obj: bytes, filepath: str | Path) -> None:
        write_atomically(filepath, obj)
        for name in {Path(path).name for path in self.outdated} - {Path(filepath).name}:
            Path(filepath).with_name(name).unlink(missing_ok=True)
        self.outdated.clear()

    def remove(self, filepath: str | Path) -> None:
        self.outdated.append(str(filepath))

    rmtree = remove  # checkpoints are files


register_backend(ATOMIC, AtomicBackend, force=True)


@HOOKS.register_module()
class CheckpointHook(UpstreamCheckpointHook):
    """mmengine's hook with its arguments. It differs in these points:

    - Of best checkpoints with a score of 0, as of an AP that stays 0, the last is kept: it has learned most.
    - On a local disk it writes a checkpoint in one step, and only then removes the checkpoints that it replaces.
    - All ranks validate with the running statistics that the checkpoint has.
    - A validation without training, `Runner.val()`, writes no checkpoint; mmengine's hook fails.
    - A checkpoint holds the `training_state`, from which `--resume` continues.
    - Neither checkpoints nor, in this package's runner, `last_checkpoint` have the absolute path of their directory.
    - Validation leaves the random generators unchanged. A validation that followed the checkpoint is repeated after
      resuming, since schedulers and the best checkpoint depend on it.
    """

    # -1 is COCO's AP without objects
    rule_map = UpstreamCheckpointHook.rule_map | dict(greater=lambda score, best: score > best or score == best <= 0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state = None
        self._random_state = None  # during a validation: the state before it
        self._epoch_begin = 0, 0  # an epoch, and its first iteration

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self._state = checkpoint.get('training_state')
        if self._state is not None:
            runner.logger.addFilter(lambda record: 'gradient of some iterations is lost' not in record.getMessage())

    def before_train(self, runner: Runner) -> None:
        """Restores the state of a resumed run, and repeats a lost validation."""
        on_disk = '://' not in str(self.out_dir or runner.work_dir)
        if on_disk and self.backend_args is None and self.file_client_args is None:
            self.backend_args = dict(backend=ATOMIC, outdated=[])
        super().before_train(runner)
        if on_disk:
            self._find_best_of_renamed_directory(runner)
        if on_disk and is_main_process():
            for path in Path(self.out_dir).glob(f'*.pth.*{TEMPORARY}'):  # left by a kill
                path.unlink(missing_ok=True)
        state, self._state = self._state, None
        trained = restore_training_state(runner, state) if runner._resume else 0  # private in mmengine 0.10.12
        self._epoch_begin = runner.epoch, runner.iter - trained
        seed_training_samples(runner)
        if state is not None and not state['validated'] and _validation_is_due(runner, state['batches_of_epoch']):
            self.last_ckpt = str(runner._load_from)
            runner.logger.info(f'The validation after iteration {runner.iter} is not in the checkpoint; it is repeated')
            runner.val_loop.run()

    def _find_best_of_renamed_directory(self, runner: Runner) -> None:
        """After a rename or copy of the directory, updates the paths of the best checkpoints."""
        noted = {key: path for key, path in runner.message_hub.runtime_info.items() if key.startswith('best_ckpt')}
        for key, path in noted.items():
            here = Path(self.out_dir) / Path(path or '').name
            if here.is_file():
                if key == 'best_ckpt':
                    self.best_ckpt_path = str(here)
                else:
                    self.best_ckpt_path_dict[key.removeprefix('best_ckpt_')] = str(here)

    def before_train_epoch(self, runner: Runner) -> None:
        """Notes the first iteration of the epoch, unless a resumed run continues in the middle of it."""
        if runner.epoch != self._epoch_begin[0]:
            self._epoch_begin = runner.epoch, runner.iter

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        """Adds the state to a checkpoint with an optimizer, and notes other checkpoints in its directory by name."""
        if 'optimizer' in checkpoint and self._state is not None:
            checkpoint['training_state'] = self._state
        info = (checkpoint.get('message_hub') or {}).get('runtime_info') or {}
        for key, path in info.items():
            if key.startswith(('best_ckpt', 'last_ckpt')) and path and Path(path).parent == Path(self.out_dir or ''):
                info[key] = Path(path).name

    def before_val(self, runner: Runner) -> None:
        self._random_state = random_state()

    def before_val_epoch(self, runner: Runner) -> None:
        """Gives all ranks the first one's running statistics, which the checkpoint has. `EMAHook` comes before this."""
        for buffer in unwrapped(runner.model).buffers():
            if buffer.is_floating_point():
                broadcast(buffer)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, Any]) -> None:
        """Writes the best checkpoint of a training run."""
        if hasattr(self, 'file_backend'):  # set before training (mmengine 0.10.12)
            super().after_val_epoch(runner, metrics)

    def after_val(self, runner: Runner) -> None:
        set_random_state(self._random_state)
        self._random_state = None

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict[str, Any]) -> None:
        """Writes a checkpoint (private in mmengine 0.10.12). The state of all ranks is part of it."""
        epoch, begin = self._epoch_begin
        self._state = training_state(
            runner,
            self._random_state or random_state(),
            batches_of_epoch=meta['iter'] - begin if meta['epoch'] == epoch else 0,
            validated=self._random_state is not None,
        )
        super()._save_checkpoint_with_step(runner, step, meta)
        self._state = None
        # mmengine reads the note as a path, from the working directory; here its name in a copied directory counts.
        is_movable = getattr(runner, 'is_movable', False) and Path(self.out_dir) == Path(runner.work_dir)
        if is_main_process() and is_movable:
            write_atomically(Path(runner.work_dir, NOTE), os.path.relpath(self.last_ckpt).encode())


def _validation_is_due(runner: Runner, batches_of_epoch: int) -> bool:
    """Returns whether a validation is due now. At the end of an unfinished epoch the loop validates by itself."""
    loop = runner.train_loop
    by_epoch = isinstance(loop, EpochBasedTrainLoop)
    if runner.val_loop is None or (by_epoch and batches_of_epoch):
        return False
    loop._decide_current_val_interval()  # by `dynamic_intervals`; private in mmengine 0.10.12, as `_load_from`
    done, end = (loop.epoch, loop.max_epochs) if by_epoch else (loop.iter, loop.max_iters)
    return done >= loop.val_begin and (done % loop.val_interval == 0 or done == end)


@HOOKS.register_module()
class EarlyStoppingHook(UpstreamEarlyStoppingHook):
    """mmengine's hook with its arguments. Checkpoints hold its best score and its count, and `--resume` restores them.

    A checkpoint is written before the validation that follows it; `CheckpointHook` repeats that validation after
    resuming, so that the count continues from the same place.
    """

    priority = 'BELOW_NORMAL'  # counts before the best checkpoint is written

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        checkpoint['early_stopping'] = dict(best_score=float(self.best_score), wait_count=self.wait_count)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        if runner._resume:  # private in mmengine 0.10.12
            vars(self).update(checkpoint.get('early_stopping') or {})
