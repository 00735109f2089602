"""Trains one run of a study with `tokennorm.train`, which also resumes it, and writes its record."""

import fcntl
import hashlib
import io
import json
import math
import os
import platform
import resource
import time
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner, set_random_seed
from torch import nn

import tokennorm
from experiments.layer_statistics import dtn_layers
from experiments.study.plan import ARMS, BASELINE, Run, Study
from tokennorm.backbones.pvt import ARCHS
from tokennorm.base.files import write_atomically
from tokennorm.base.messages import UserError
from tokennorm.checkpoints.publication import for_publication, to_bytes
from tokennorm.checkpoints.safe_reading import read_checkpoint
from tokennorm.config.tree import walk
from tokennorm.engine.resume.random_state import preserved_generators, seed_generators
from tokennorm.registry import HOOKS
from tokennorm.report.scalars import read_scalars

RECORD = 'record.json'
_PACKAGES = ('torch', 'onedl-mmengine', 'onedl-mmcv', 'onedl-mmdetection', 'onedl-mmpretrain', 'numpy')


@HOOKS.register_module()
class SharedInitHook(Hook):
    """Copies the initial values of the baseline's model of the same seed into every parameter that an arm shares.

    Args:
        with_backbone: Include the backbone. False if the backbone is initialized from a checkpoint.
        values: Arguments of `set_initial_values`; None keeps lambda and P as they are.
    """

    priority = 'LOWEST'

    def __init__(self, with_backbone: bool, values: dict[str, Any] | None = None) -> None:
        self.with_backbone, self.values = with_backbone, values

    def before_train(self, runner: Runner) -> None:
        """Copies the values unless the run is resumed, and seeds the random numbers of the training."""
        if runner.iter == 0:
            copy_shared(runner.model, shared_init(runner.cfg, runner.seed, self.with_backbone))
            if self.values is not None:
                set_initial_values(runner.model, **self.values)
            set_random_seed(runner.seed)


def shared_init(cfg: Config, seed: int, with_backbone: bool) -> dict[str, torch.Tensor]:
    """Initial values of the baseline's model for a seed, from the config of any arm. Its scope must be active."""
    model_cfg = deepcopy(cfg.model)
    for key, value in ARMS[BASELINE].items():
        model_cfg.backbone[key] = dict(value)  # ConfigDict.update would merge it into the arm's
    model_cfg.backbone.init_cfg = None
    with preserved_generators():
        seed_generators(seed)
        model = MODELS.build(model_cfg)
        model.init_weights()
    return {key: v for key, v in model.state_dict().items() if with_backbone or not key.startswith('backbone.')}


@torch.no_grad()
def copy_shared(model: nn.Module, shared: dict[str, torch.Tensor]) -> list[str]:
    """Copies the shared values whose names and shapes agree into a model; returns the names."""
    state = model.state_dict()
    copied = [key for key, value in state.items() if key in shared and shared[key].shape == value.shape]
    for key in copied:
        state[key].copy_(shared[key])
    return copied


@torch.no_grad()
def set_initial_values(
    model: nn.Module, mean: tuple[float, float], var: tuple[float, float], width: float, offset: float
) -> None:
    """Sets lambda and P of every DTN layer: `initial_values` of an arm.

    Args:
        model: A model with DTN in its blocks.
        mean: lambda of the mean, before the attention (`norm1`) and before the MLP.
        var: lambda of the variance, likewise.
        width: Factor of a1 of Eq. 6; less than one widens P.
        offset: Factor of a2 and a3.
    """
    for name, norm in dtn_layers(model).items():
        place = 0 if name.endswith('norm1') else 1
        for logit, values in ((norm.mean_logit, mean), (norm.var_logit, var)):
            logit.fill_(math.log(values[place] / (1 - values[place])))
        norm.position.mul_(norm.position.new_tensor([width, offset, offset]))


@HOOKS.register_module()
class LogitsHook(Hook):
    """Writes the logits of lambda, and P, of every DTN layer to `path.jsonl`, a line every 100 steps."""

    interval = 100

    def before_train(self, runner: Runner) -> None:
        self._write(runner, runner.iter)

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        if (runner.iter + 1) % self.interval == 0 or runner.iter + 1 == runner.max_iters:
            self._write(runner, runner.iter + 1)

    def _write(self, runner: Runner, step: int) -> None:
        values = {
            f'{name}.{key}': [round(float(value), 4) for value in parameter.detach().flatten()]
            for name, norm in dtn_layers(runner.model).items()
            for key, parameter in norm.named_parameters()
            if key in ('mean_logit', 'var_logit', 'position')
        }
        if values:
            with (Path(runner.work_dir) / 'path.jsonl').open('a', encoding='utf-8') as file:
                file.write(f'{json.dumps(dict(step=step, **values))}\n')


def pack_path(folder: Path) -> None:
    """Writes `path.npz` from `path.jsonl`: `steps` (S,), and float16 values (S, N) per parameter.

    A resumed run repeats steps; the last line of a step counts.
    """
    path = folder / 'path.jsonl'
    if not path.is_file():
        return
    rows = {row.pop('step'): row for row in map(json.loads, path.read_text(encoding='utf-8').splitlines())}
    steps = sorted(rows)
    values = {key: np.array([rows[step][key] for step in steps], np.float16) for key in rows[steps[0]]}
    content = io.BytesIO()
    np.savez_compressed(content, steps=np.array(steps, np.int32), **values)
    write_atomically(folder / 'path.npz', content.getvalue())


def train_run(study: Study, run: Run) -> None:
    """Trains a run to its end, from its latest checkpoint if it has one.

    The work directory then holds `weights.pth` and `record.json`: the metric of every validation, the processor time,
    and the conditions. A killed process loses at most an epoch, and its time is missing from the record.

    Raises:
        UserError: if the folder holds a run of another config, another process trains in it, or training fails.
    """
    folder = study.folder(run)
    if is_finished(folder):
        return
    cfg = study.run_config(run)
    folder.mkdir(parents=True, exist_ok=True)
    record = read_record(folder) or new_record(cfg, run)
    if not has_config(record, cfg):
        raise UserError(f'{folder} holds a run of another config; remove it, or choose another folder with --work-dir')
    with (folder / '.lock').open('w', encoding='utf-8') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f'another process is training in {folder}') from None
        began = time.monotonic()
        try:
            tokennorm.train(_with_hooks(study, run, cfg), work_dir=folder, resume=True)
        finally:
            record['machines'] = sorted({*record['machines'], machine()})
            record['seconds'] += time.monotonic() - began
            record['cpu_seconds'] += time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            write_record(folder, record)
        _finish(study, run, cfg, record)


def _with_hooks(study: Study, run: Run, cfg: Config) -> Path:
    cfg = deepcopy(cfg)
    imports = list(cfg.get('custom_imports', {}).get('imports', []))
    cfg.custom_imports = dict(imports=[*imports, __name__])
    cfg.default_hooks.checkpoint.save_best = None
    values = cfg.get('initial_values')  # of the arm; training removes this entry, which no package reads
    shared = dict(type='tokennorm.SharedInitHook', with_backbone=study.before(run) is None, values=values)
    more = [dict(type='tokennorm.LambdaHook'), dict(type='tokennorm.LogitsHook')]
    cfg.custom_hooks = [*cfg.get('custom_hooks', []), shared, *more]
    path = study.folder(run) / 'run.py'
    cfg.dump(path)
    return path


def _finish(study: Study, run: Run, cfg: Config, record: dict[str, Any]) -> None:
    """Writes the weights as `weights.pth`, completes the record, and removes the checkpoints to resume from."""
    folder, metric = study.folder(run), study.stages[run.stage].metric
    last = folder / f'epoch_{record["epochs"]}.pth'
    content = for_publication(read_checkpoint(last), last)
    write_atomically(folder / 'weights.pth', to_bytes(content))
    pack_path(folder)
    logits = [v for key, v in content['state_dict'].items() if key.endswith(('mean_logit', 'var_logit'))]
    if logits:
        learned = torch.cat(logits).sigmoid()
        record['lambda'] = [round(learned.min().item(), 4), round(learned.max().item(), 4)]
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        record['parameters'] = sum(p.numel() for p in MODELS.build(cfg.model).parameters())
    curve = read_scalars(folder).get(metric, {})  # empty if a detector never found anything
    record['curve'] = {str(epoch): {metric: value} for epoch, value in curve.items()}
    record['curve'].setdefault(str(record['epochs']), {})
    write_record(folder, record | dict(finished=True))
    for path in folder.glob('epoch_*.pth'):
        path.unlink()


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a run; None if the run has not started."""
    path = folder / RECORD
    return json.loads(path.read_text(encoding='utf-8')) if path.is_file() else None


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Replaces a record atomically."""
    write_atomically(folder / RECORD, f'{json.dumps(record, indent=1)}\n'.encode())


def is_finished(folder: Path) -> bool:
    """Returns whether a run has all its epochs, its last validation and its weights."""
    record = read_record(folder)
    return record is not None and record['finished']


def fingerprint(cfg: Config, drop: tuple[str, ...] = ('work_dir', 'custom_imports')) -> str:
    """A hash of what determines the result of a run: its config without paths and without names of modules."""
    content = cfg.to_dict()
    for key in drop:
        content.pop(key, None)
    backbone = content['model']['backbone']
    if backbone.get('arch') == 'mini':
        backbone['arch'] = ARCHS['mini']  # as the configs of the first runs had it
    for _, part in list(walk(content['model'])):
        if str((part.get('iou_calculator') or {}).get('type')).endswith('BboxOverlapsInParts'):
            del part['iou_calculator']  # with equal values, which the first runs did not name
    init_cfg = backbone.pop('init_cfg', None)
    content['starts_from'] = Path(init_cfg['checkpoint']).name if init_cfg else None
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def has_config(record: dict[str, Any], cfg: Config) -> bool:
    """Returns whether a record is of a run of this config, also if it was written with names of modules hashed."""
    return record['fingerprint'] in (fingerprint(cfg), fingerprint(cfg, drop=('work_dir',)))


def new_record(cfg: Config, run: Run) -> dict[str, Any]:
    """The record of a run that starts now."""
    return dict(
        arm=run.arm,
        seed=run.seed,
        finished=False,
        fingerprint=fingerprint(cfg),
        epochs=cfg.train_cfg.max_epochs,
        batch_size=cfg.train_dataloader.batch_size,
        optimizer={key: value for key, value in cfg.optim_wrapper.optimizer.items() if key != 'fused'},
        curve={},
        seconds=0.0,
        cpu_seconds=0.0,
        machines=[],
        versions=dict(python=platform.python_version(), tokennorm=tokennorm.__version__)
        | {name: version(name) for name in _PACKAGES},
    )


def machine() -> str:
    """The processor that this process trains on, and its number of threads."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    path = Path('/proc/cpuinfo')
    lines = path.read_text(encoding='utf-8').splitlines() if path.is_file() else []
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return f'{names[0] if names else platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} thread(s)'
