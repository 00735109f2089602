"""Pieces of a run: each trains for some minutes, and the next one continues as if there had been no interruption."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import MODELS
from mmengine.runner import Runner, set_random_seed
from torch import nn

from experiments.study.plan import ARMS, BASELINE, Run, Study
from experiments.study.records import has_config, is_finished, machine, new_record, read_record, write_record
from tokennorm.checkpoints.reading import NOTE, read_checkpoint
from tokennorm.checkpoints.writing import for_publication, to_bytes
from tokennorm.engine.build import build_runner
from tokennorm.engine.resume.random_state import seeded
from tokennorm.engine.training import run as train_runner
from tokennorm.files import write_atomically
from tokennorm.messages import UserError
from tokennorm.report.lambda_hook import LambdaHook


class PieceHook(Hook):
    """Divides a training run into pieces, which TokenNorm's `CheckpointHook` joins without a difference.

    - The first piece copies the initial values that all arms share into the model and seeds the random numbers.
    - After an epoch and its checkpoint, training stops if another epoch would not end in time.
    - The record gets validation metrics and times at once. `CheckpointHook` repeats a validation that was killed.

    Args:
        folder: The run's work directory.
        record: Its record, with the entries of earlier pieces.
        minutes: Time for the piece, counted from the construction of this hook.
        shared: Initial parameters and buffers by name.
    """

    priority = 'LOWEST'

    def __init__(self, folder: Path, record: dict, minutes: float, shared: dict[str, torch.Tensor]) -> None:
        self.folder = folder
        self.record = record
        self.shared = shared
        self.ends = time.monotonic() + 60 * minutes
        self.epoch_began = self.noted = time.monotonic()
        self.noted_cpu = time.process_time()
        self.longest = 0.0

    def before_train(self, runner: Runner) -> None:
        """Copies the shared values into a new model, and adds the sizes of model and data to the record."""
        if runner.epoch == 0:
            self.record['curve'].clear()
            copy_shared(runner.model, self.shared)
            set_random_seed(runner.seed)
        self.record['parameters'] = sum(p.numel() for p in runner.model.parameters())
        self.record['train_images'] = len(runner.train_dataloader.dataset)
        self.record['val_images'] = len(runner.val_dataloader.dataset)

    def before_train_epoch(self, runner: Runner) -> None:
        """Notes when the epoch starts."""
        self.epoch_began = time.monotonic()

    def after_train_epoch(self, runner: Runner) -> None:
        """Stops training if there is no time for another epoch and its validation."""
        now = time.monotonic()
        self.longest = max(self.longest, now - self.epoch_began)
        if now + 1.5 * self.longest > self.ends:
            runner.train_loop.stop_training = True

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        """Adds the metrics to the record."""
        self.record['curve'][str(runner.epoch)] = {key: float(value) for key, value in metrics.items()}
        self.longest = max(self.longest, time.monotonic() - self.epoch_began)
        self.note()

    def after_train(self, runner: Runner) -> None:
        """Adds the time to the record."""
        self.note()

    def note(self) -> None:
        """Writes the record with the elapsed seconds and processor seconds."""
        now, cpu = time.monotonic(), time.process_time()
        self.record['seconds'] += now - self.noted
        self.record['cpu_seconds'] += cpu - self.noted_cpu
        self.noted, self.noted_cpu = now, cpu
        write_record(self.folder, self.record)


def shared_init(cfg: Config, seed: int, with_backbone: bool) -> dict[str, torch.Tensor]:
    """Initial values of the baseline's model for a seed. Each arm copies those that it also has.

    Args:
        cfg: The config of a run of any arm. Its scope must be active.
        seed: The run's seed.
        with_backbone: Include the backbone. False if the backbone is initialized from a checkpoint.
    """
    model_cfg = deepcopy(cfg.model)
    for key, value in ARMS[BASELINE].items():
        model_cfg.backbone[key] = dict(value)  # ConfigDict.update would merge it into the arm's
    model_cfg.backbone.init_cfg = None
    with seeded(seed):
        model = MODELS.build(model_cfg)
        model.init_weights()
    return {key: v for key, v in model.state_dict().items() if with_backbone or not key.startswith('backbone.')}


@torch.no_grad()
def copy_shared(model: nn.Module, shared: dict[str, torch.Tensor]) -> list[str]:
    """Copies the shared values whose names and shapes agree into a model; returns the names."""
    copied = []
    for key, value in model.state_dict().items():
        if key in shared and shared[key].shape == value.shape:
            value.copy_(shared[key])
            copied.append(key)
    return copied


def run_piece(study: Study, run: Run, minutes: float) -> None:
    """Trains a run for some minutes, and at least one epoch. Finishes the run after its last epoch."""
    folder = study.folder(run)
    if is_finished(folder):
        return
    before = study.before(run)
    if before is not None and not is_finished(study.folder(before)):
        raise UserError(f'{run} needs the weights of {before}, which is not finished')
    cfg = study.run_config(run)
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder):
        _train_piece(study, run, cfg, minutes)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Keeps other processes from training in a folder."""
    with (folder / '.lock').open('w') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f'another process is training in {folder}') from None
        yield


def _train_piece(study: Study, run: Run, cfg: Config, minutes: float) -> None:
    folder = study.folder(run)
    record = read_record(folder) or new_record(cfg, run.stage, run.arm, run.seed)
    if not has_config(record, cfg):
        raise UserError(f'{folder} holds a run of another config; remove it, or choose another folder with --work-dir')
    record['pieces'] += 1
    record['machines'] = sorted({*record['machines'], machine()})
    cfg.resume = any(folder.glob('*.pth'))
    runner = build_runner(cfg, splits=('train', 'val'))
    shared = shared_init(cfg, run.seed, with_backbone=study.before(run) is None)
    hook = PieceHook(folder, record, minutes, shared)
    runner.register_hook(hook, priority='LOWEST')
    runner.register_hook(LambdaHook())
    train_runner(runner, how_to_continue='the same command continues from the latest.')
    if runner.epoch == runner.max_epochs:
        finish(runner, folder, record)


def finish(runner: Runner, folder: Path, record: dict) -> None:
    """Writes the weights as `weights.pth`, removes the checkpoints to resume from, and marks the run finished.

    The record of a model with DTN gets the least and the largest learned lambda of all its heads.
    """
    path = folder / f'epoch_{runner.max_epochs}.pth'
    write_atomically(folder / 'weights.pth', to_bytes(for_publication(read_checkpoint(path), path)))
    learned = [p.sigmoid() for name, p in runner.model.named_parameters() if name.endswith(('mean_logit', 'var_logit'))]
    if learned:
        ratios = torch.cat(learned)
        record['lambda'] = [round(ratios.min().item(), 4), round(ratios.max().item(), 4)]
    record['finished'] = True
    write_record(folder, record)
    for path in [*folder.glob('epoch_*.pth'), folder / NOTE]:
        path.unlink(missing_ok=True)
