"""The runner of a training run or an evaluation: built after what breaks most often was checked, and run."""

import errno
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import mmengine.runner
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.registry import RUNNERS, init_default_scope
from mmengine.visualization import Visualizer
from torch import nn

from tokennorm.base.environment import check_mmcv_ops
from tokennorm.base.files import as_json, make_output_dir
from tokennorm.base.messages import UserError
from tokennorm.checkpoints import Checkpoint, CheckpointError, check_fit, convert_detector, find_checkpoint
from tokennorm.checkpoints.locating import newest_checkpoint
from tokennorm.checkpoints.safe_reading import common_meta, keep_mmengine_from_unpickling
from tokennorm.config.build_errors import build_errors
from tokennorm.config.detector_files import written_configs
from tokennorm.config.tree import as_list, innermost_datasets, loaders
from tokennorm.engine.class_layers import Rows, class_rows
from tokennorm.engine.distributed import start_cpu_processes, unwrapped
from tokennorm.engine.hooks.data_errors import DataErrorHook
from tokennorm.engine.hooks.progress import console_handlers
from tokennorm.engine.loggers import as_set_outside, guard
from tokennorm.engine.resume.resumed_schedule import use_settings_of_run
from tokennorm.engine.resume.training_state import make_resumable, restart_epoch
from tokennorm.engine.rules import Built, verify
from tokennorm.findings import collected, current
from tokennorm.plan.data import limit_detections
from tokennorm.plan.hooks import UPSTREAM
from tokennorm.registry.compat import make_mmengine_write_json, make_ssd_predict

_ROUTINE = (  # of the upstream libraries: long lists, advice to programmers, and paths that the summary has
    'Config:\n',
    'System environment:',
    'Hooks will be executed in the following order',
    'paramwise_options --',
    '"FileClient" will be deprecated',
    '"HardDiskBackend" is the alias',
    'all SyncBatchNorm (SyncBN) layers',
    'Loads checkpoint by ',
    'is skipped since its requires_grad=False',
    'It is skipped since bypass_duplicate=True',
    'Checkpoints will be saved to',
    'Exp name:',
    'The best checkpoint with',
    'The previous best checkpoint',
)


class Runner(mmengine.runner.Runner):
    """mmengine's runner with a quiet console.

    The console leaves out the config, the environment, and lists of hooks and parameters. The log file in the work
    directory has them. `ProgressHook` shows how training proceeds.
    """

    is_checked, is_movable = False, True
    fitted: tuple[Sequence[str], str] = (), ''  # of `fit_to_training`, for the summary

    def build_logger(self, *args: Any, **kwargs: Any) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        for handler in logger.handlers:
            if isinstance(handler, logging.FileHandler):  # mmengine opens it in the encoding of the machine
                handler.encoding, handler.errors = 'utf-8', 'backslashreplace'
                handler.stream.reconfigure(encoding=handler.encoding, errors=handler.errors)
                handler.mode = 'a'  # it is opened again where a package closes all handlers, as MLflow 2 does
        for handler in console_handlers(logger):
            handler.addFilter(lambda record: not any(text in record.getMessage()[:200] for text in _ROUTINE))
        return logger

    def dump_config(self) -> None:
        """Writes the config, not before `is_checked`: that of a run to resume must not be lost if it cannot be resumed.

        A run can be copied and moved: its `work_dir` is not an absolute path. Where it lies is `runner.work_dir`.
        """
        if Path(self.cfg.work_dir).is_absolute():
            self.cfg.work_dir = Path(self.cfg.work_dir).name or '.'
        if self.is_checked:
            super().dump_config()

    def setup_env(self, env_cfg: dict[str, Any]) -> None:
        """Makes the time of the run, which is in its name and is its log directory, its own in this process.

        mmengine counts whole seconds, and gives a run logger and losses of another one of the same name.
        """
        super().setup_env(env_cfg)
        name, second = self.cfg.get('experiment_name') or Path(self.cfg.filename or '').stem, self._timestamp
        for number in count(2):
            if not MMLogger.check_instance_created(f'{name}_{self._timestamp}'.lstrip('_')):
                break
            self._timestamp = f'{second}_{number}'

    def build_visualizer(self, visualizer: Any = None) -> Visualizer:
        """Builds the visualizer, whose loggers cannot end training."""
        if isinstance(visualizer, Mapping) and (entries := visualizer.get('vis_backends')):
            visualizer = dict(visualizer, vis_backends=[as_set_outside(entry) for entry in as_list(entries)])
        built = super().build_visualizer(visualizer)
        guard(built._vis_backends, self.logger.warning)  # private in mmengine 0.10.12
        return built

    def train(self) -> nn.Module:
        """Trains. Hooks with a method `on_exit` are called at the end, also after an error or an interruption."""
        try:
            return super().train()
        except BaseException:
            self.visualizer.close()
            raise
        finally:
            self.call_hook('on_exit')


@collected()
def build_runner(cfg: Config, splits: tuple[str, ...], checkpoint: Checkpoint | None = None) -> Runner:
    """Builds the runner of a config, and applies the rules about recipes: before, to what was built, and to samples.

    Args:
        cfg: A whole config, which stays as it is and is what the run writes.
        splits: Of the data that the runner uses: 'train' and 'val', or 'test'.
        checkpoint: That of `load_from` or the backbone's `init_cfg`, where it has been read.
    """
    training = 'train' in splits
    check_mmcv_ops()
    keep_mmengine_from_unpickling()
    make_mmengine_write_json(as_json)
    make_ssd_predict()
    if not cfg.get(f'{splits[0]}_dataloader'):
        raise UserError(f'{cfg.filename} has no {splits[0]}_dataloader: it is not a whole config')
    make_output_dir(cfg.work_dir)
    current().allow(cfg.get('allow') or ())
    verify('config', Built(cfg, splits))
    parts = as_built(cfg, training)
    start_cpu_processes(parts)
    init_default_scope(cfg.get('default_scope') or 'mmengine')  # Runner skips this for a name that it has seen
    with build_errors('the config cannot be used'):
        runner = RUNNERS.build(parts) if 'runner_type' in parts else Runner.from_cfg(parts)
    runner.cfg = deepcopy(cfg)
    if training and cfg.get('resume'):
        runner.cfg.resume = False  # another run with this config would resume, too
    try:
        _check_built(runner, parts, splits, checkpoint)
    except BaseException:
        runner.visualizer.close()
        raise
    return runner


def as_built(cfg: Config, training: bool) -> Config:
    """Returns a copy of a config with what this run needs to be built, and another run with the config does not.

    That is the place of the checkpoint to resume, what resuming needs, and what PyTorch, mmengine and mmdet accept.
    """
    parts = deepcopy(cfg)
    limit_detections(parts.model)
    for loader in loaders(parts):
        if not loader.get('num_workers'):  # PyTorch refuses these without workers
            loader['persistent_workers'] = False
            loader.pop('prefetch_factor', None)
    hooks = parts.get('default_hooks') or {}
    for name in [name for name in hooks if hooks[name] is None and name not in UPSTREAM]:
        del hooks[name]  # mmengine leaves out its own ones only
    if parts.get('visualizer'):  # a second one of the same name would write into the folder of an earlier run
        parts.visualizer.pop('name', None)
    if training:
        make_resumable(parts)
        find_checkpoint_to_resume(parts)
        if parts.get('load_from'):
            parts.load_from = find_checkpoint(parts.load_from)
            init_cfg = (parts.model.get('backbone') or {}).get('init_cfg')
            if isinstance(init_cfg, Mapping) and init_cfg.get('type') == 'Pretrained':
                parts.model.backbone.init_cfg = None  # perhaps a download; `load_from` fills the whole backbone
    return parts


def _check_built(runner: Runner, cfg: Config, splits: tuple[str, ...], checkpoint: Checkpoint | None) -> None:
    """Applies the rules to a runner, before the checkpoint of `load_from` is loaded and after it.

    `cfg` is what it was built from.
    """
    training = 'train' in splits
    with build_errors():
        built = replace(Built.of(runner, splits, checkpoint), cfg=cfg)  # with the checkpoint to resume
        verify('built', built)
        verify('loops', built)
    if training:
        _note_category_ids(runner.train_dataloader.dataset)
    for hook in runner.hooks:
        if isinstance(hook, DataErrorHook):
            hook.before_run(runner)  # samples are tried before training
    if cfg.get('load_from'):
        load_from_checkpoint(runner, cfg, training, checkpoint)
    elif checkpoint is not None:
        verify('checkpoint', built)
    if training:
        verify('samples', built)
    runner.is_checked = True
    runner.dump_config()


def _note_category_ids(dataset: Any) -> None:
    """Notes the ids of a COCO file's categories in the metainfo, which checkpoints keep and predictions carry."""
    ids, meta = getattr(next(innermost_datasets(dataset)), 'cat_ids', None), getattr(dataset, '_metainfo', None)
    if ids and isinstance(meta, dict):
        meta.setdefault('category_ids', tuple(ids))


def find_checkpoint_to_resume(cfg: Config) -> None:
    """Sets `load_from` to the latest checkpoint, if `resume` names none. Without any, nothing is resumed."""
    if isinstance(cfg.get('resume'), str):
        cfg.load_from, cfg.resume = None if cfg.resume == 'auto' else cfg.resume, True
    if cfg.get('resume') and not cfg.get('load_from'):
        latest = newest_checkpoint(Path(cfg.work_dir))
        cfg.resume, cfg.load_from = latest is not None, None if latest is None else str(latest)


def load_from_checkpoint(runner: Runner, cfg: Config, training: bool, checkpoint: Checkpoint | None = None) -> None:
    """Makes a runner load the checkpoint of `load_from` after checking its fit; mmengine skips tensors that do not fit.

    To resume or to test, all tensors and the classes must fit. A new training run may have other heads, and takes the
    rows of its classes by their names.
    """
    if checkpoint is None or checkpoint.source != cfg.get('load_from'):
        checkpoint = Checkpoint.read(cfg.get('load_from'))
    model, state_dict = unwrapped(runner.model), checkpoint.state_dict
    splits = ('train',) if training else ('test',)
    data = {splits[0]: (runner.train_dataloader if training else runner.test_dataloader).dataset}
    verify('checkpoint', Built(cfg, splits, model, data, hooks=runner.hooks, checkpoint=checkpoint))
    rows: Rows = {}
    if cfg.get('resume'):
        check_fit(model, state_dict, checkpoint.source, details=_own_config(cfg))
    else:
        line, classes = '', common_meta(getattr(data[splits[0]], 'metainfo', None)).get('classes')
        if training and classes:
            rows, line = class_rows(cfg, model, checkpoint, list(classes))
        others = {key: value for key, value in state_dict.items() if key not in rows}
        state_dict, report = convert_detector(model, others, checkpoint.source, new_heads=training)
        if training:
            report.missing = [key for key in report.missing if key not in rows]
            report.loaded, report.note = [*report.loaded, *rows], '\n  '.join(filter(None, (report.note, line)))
            runner.logger.info(str(report))
    content = dict(checkpoint.content, state_dict=state_dict)
    content['meta'] = {key: value for key, value in (content.get('meta') or {}).items() if key != 'config'}
    runner.load_checkpoint = partial(_load_checkpoint, runner, content, rows)


def _load_checkpoint(runner: Runner, checkpoint: dict[str, Any], rows: Rows, filename: str, **_: Any) -> dict[str, Any]:
    """`Runner.load_checkpoint` of a checkpoint that has been read and fits. It is called once.

    `rows` complete initial values, which the model has only now.
    """
    del runner.load_checkpoint
    if rows:
        initial = unwrapped(runner.model).state_dict()
        checkpoint['state_dict'] |= {key: take(initial[key]) for key, take in rows.items()}
    runner.call_hook('after_load_checkpoint', checkpoint=checkpoint)  # EMAHook replaces the state dict
    if runner._resume:  # private in mmengine 0.10.12
        dataset_meta = getattr(runner.train_dataloader.dataset, 'metainfo', None)
        noted = checkpoint['meta'].get('dataset_meta')
        if len({as_json(meta, default=str, sort_keys=True) for meta in (dataset_meta, noted)}) == 1:
            checkpoint['meta']['dataset_meta'] = dataset_meta  # mmengine compares pickles, and would warn
        restart_epoch(runner, checkpoint)
        use_settings_of_run(runner, checkpoint)
    unwrapped(runner.model).load_state_dict(checkpoint['state_dict'], strict=False)  # heads may be new
    runner.logger.info(f'Load checkpoint from {filename}')
    return checkpoint


def _shared_memory_is_full() -> bool:
    """Returns whether data workers have no place for their batches. The error does not say which disk is full."""
    with suppress(OSError):  # not Linux
        return shutil.disk_usage('/dev/shm').free < 2**20
    return False


def _own_config(cfg: Config) -> str:
    """Returns the way out for a run that was trained with another model than that of the config."""
    configs = written_configs(Path(cfg['load_from']).parent)
    return f'\nThe run wrote its own: tokennorm train {configs[-1]} --resume' if configs else ''


def run(runner: Runner, how_to_continue: str) -> None:
    """Runs training. Errors of the user and an interruption say where the checkpoints are and how to continue."""
    begin = runner.iter
    try:
        with build_errors():
            runner.train()
    except CheckpointError as error:
        raise UserError(f'{error}. Name initial weights with --init FILE, or use --init none') from None
    except AssertionError as error:  # by which mmengine's hooks refuse their arguments before the first iteration
        if runner.iter > begin or not str(error):
            raise
        raise UserError(f'the config cannot be used: {error}') from error
    except OSError as error:  # such as a full disk
        if error.errno == errno.ENOSPC and _shared_memory_is_full():
            raise OSError(errno.ENOSPC, 'out of shared memory: /dev/shm is full') from error
        raise UserError(f'{error}. Checkpoints so far are in {runner.work_dir}; {how_to_continue}') from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f'Interrupted. Checkpoints so far are in {runner.work_dir}; {how_to_continue}'
        ) from None
