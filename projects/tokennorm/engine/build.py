"""Builds mmengine's runner of a config after checking what breaks most often."""

from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import RUNNERS, init_default_scope
from torch import Tensor

from tokennorm.checkpoints import CheckpointError, check_fit, convert_detector, find_checkpoint, read_checkpoint
from tokennorm.checkpoints.finding import newest_checkpoint
from tokennorm.checkpoints.reading import common_meta, keep_mmengine_from_unpickling, state_dict_in, trained_meta
from tokennorm.config.build_errors import build_errors
from tokennorm.engine.checks import check_classes, check_config_data, check_feature_maps
from tokennorm.engine.distributed import start_cpu_processes, unwrapped
from tokennorm.engine.errors import DataErrorHook
from tokennorm.engine.resume.training_state import make_resumable
from tokennorm.engine.settings import use_weights_of_backbone
from tokennorm.engine.summary import Runner
from tokennorm.environment import check_mmcv_ops
from tokennorm.files import make_output_dir
from tokennorm.messages import user_errors


def build_runner(cfg: Config, splits: tuple[str, ...]) -> Runner:
    """Builds mmengine's runner of a config. What breaks most often is checked before, and raises `UserError`."""
    with user_errors(ImportError, RuntimeError, ValueError, FileNotFoundError, ConnectionError):
        check_mmcv_ops()
        keep_mmengine_from_unpickling()
        for key in (f'{split}_dataloader' for split in splits if split != 'val'):
            if not cfg.get(key):
                raise ValueError(f'{cfg.filename} has no {key}: it is not a whole config')
        make_output_dir(cfg.work_dir)
        check_config_data(cfg, splits)
        if 'train' in splits:
            make_resumable(cfg)
            load_from, init_cfg = cfg.get('load_from'), (cfg.model.get('backbone') or {}).get('init_cfg')
            _find_checkpoint_to_resume(cfg)
            if cfg.get('load_from'):
                cfg.load_from = find_checkpoint(cfg.load_from)
            use_weights_of_backbone(cfg)
        start_cpu_processes(cfg)
        init_default_scope(cfg.get('default_scope') or 'mmengine')  # Runner skips this for a name that it has seen
        if cfg.get('visualizer'):  # a second one of the same name would write into the folder of an earlier run
            cfg.visualizer.pop('name', None)
    with build_errors():
        runner = RUNNERS.build(cfg) if 'runner_type' in cfg else Runner.from_cfg(cfg)
    if 'train' in splits and cfg.get('resume'):
        runner.cfg.resume, runner.cfg.load_from = False, load_from  # another run with this config would resume, too
        if init_cfg is not None:
            runner.cfg.model.backbone.init_cfg = init_cfg
        runner.dump_config()
    model = unwrapped(runner.model)
    with user_errors(ValueError):
        check_feature_maps(model, cfg.model.get('neck'))
    runner.register_hook(DataErrorHook())
    with build_errors(), user_errors(CheckpointError, OSError, ValueError):
        _load_from(runner, cfg, training='train' in splits)
    return runner


def _find_checkpoint_to_resume(cfg: Config) -> None:
    """Sets `load_from` to the latest checkpoint, if `resume` names none. Without any, nothing is resumed."""
    if isinstance(cfg.get('resume'), str):
        cfg.load_from, cfg.resume = None if cfg.resume == 'auto' else cfg.resume, True
    if cfg.get('resume') and not cfg.get('load_from'):
        latest = newest_checkpoint(Path(cfg.work_dir))
        cfg.resume, cfg.load_from = latest is not None, None if latest is None else str(latest)


def _load_from(runner: Runner, cfg: Config, training: bool) -> None:
    """Checks that the checkpoint of `load_from` fits, since mmengine silently skips tensors that do not.

    To resume or to test, all tensors and the classes must fit. A new training run may have other heads.
    """
    if not (checkpoint := cfg.get('load_from')):
        return
    model = unwrapped(runner.model)
    content = read_checkpoint(checkpoint)
    state_dict = state_dict_in(content, checkpoint)
    if cfg.get('resume') and 'optimizer' not in content:
        raise CheckpointError(
            f'--resume: {checkpoint} has only weights, not the state of a training run. '
            f'To start a new run from them: --init {checkpoint}'
        )
    if cfg.get('resume') or not training:
        loader = runner.train_dataloader if training else runner.test_dataloader
        classes = common_meta(getattr(loader.dataset, 'metainfo', None)).get('classes')
        trained = trained_meta(content).get('classes')
        if classes and trained:
            check_classes(trained, classes, checkpoint)
    if not cfg.get('resume'):
        converted, report = convert_detector(model, state_dict, checkpoint, new_heads=training)
        if training:
            runner.logger.info(str(report))
        runner.register_hook(_ConvertedWeights(converted), priority='VERY_HIGH')  # before EMAHook copies them
        return
    check_fit(model, state_dict, checkpoint)


class _ConvertedWeights(Hook):
    """Replaces the state dict of the checkpoint that mmengine loads by a converted one."""

    def __init__(self, state_dict: dict[str, Tensor]) -> None:
        self.state_dict = state_dict

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        checkpoint['state_dict'] = self.state_dict
