"""Early stopping that resumes."""

from typing import Any

from mmengine.hooks import EarlyStoppingHook as UpstreamEarlyStoppingHook
from mmengine.runner import Runner

from tokennorm.registry import HOOKS


@HOOKS.register_module()
class EarlyStoppingHook(UpstreamEarlyStoppingHook):
    """mmengine's hook with its arguments. Checkpoints hold its best score and its count, and `--resume` restores them.

    A checkpoint is written before the validation that follows it; `tokennorm.CheckpointHook` repeats that validation
    after resuming, so that the count continues from the same place.
    """

    priority = 'BELOW_NORMAL'  # counts before the best checkpoint is written

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        checkpoint['early_stopping'] = dict(best_score=float(self.best_score), wait_count=self.wait_count)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        if runner._resume and 'early_stopping' in checkpoint:  # private in mmengine 0.10.12
            self.best_score = checkpoint['early_stopping']['best_score']
            self.wait_count = checkpoint['early_stopping']['wait_count']

    def before_train(self, runner: Runner) -> None:
        """A run that had stopped early does not continue when it is resumed."""
        if self.wait_count >= self.patience:
            runner.train_loop.stop_training = True
