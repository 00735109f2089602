"""The config of a training run or an evaluation: a file, its work directory, hooks and options."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from tokennorm.config_files import check_options, merge_options, read_config
from tokennorm.config_tree import evaluators, is_classifier
from tokennorm.engine.data import use_loader_defaults
from tokennorm.registry import type_name

HOOKS = (dict(type='tokennorm.ReportHook'), dict(type='tokennorm.LambdaHook', interval=100))


def open_config(
    config: str | Path,
    work_dir: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    launcher: str = 'none',
) -> Config:
    """Returns a config with its work directory and our hooks. `options` are checked only: `merge` applies them.

    The arguments are those of `tokennorm.train`. Whatever the user can fix raises `UserError`.
    """
    cfg = read_config(config)
    cfg.launcher, options = launcher, options or {}
    check_options(cfg, options)
    chosen = options.get('work_dir') or work_dir or cfg.get('work_dir')
    cfg.work_dir = str(chosen or Path('work_dirs') / Path(cfg.filename).stem)
    if is_classifier(cfg):
        use_loader_defaults(cfg)
    cfg.setdefault('default_hooks', {})
    cfg.default_hooks.setdefault('non_finite', dict(type='tokennorm.NonFiniteHook'))
    use_report(cfg)
    return cfg


def merge(cfg: Config, options: Mapping[str, Any] | None) -> None:
    """Applies `--cfg-options`, which take precedence over all else."""
    merge_options(cfg, options)
    if cfg.default_hooks.get('non_finite', {}) is None:
        del cfg.default_hooks['non_finite']


def use_report(cfg: Config) -> None:
    """Sets `tokennorm.CocoMetric` instead of mmdet's, which gives the same values, and adds the report's hooks.

    The hooks are `tokennorm.LambdaHook` for the curves of lambda, and `tokennorm.ReportHook` where COCO AP validates.
    """
    for split in ('val', 'test'):
        for metric in evaluators(cfg, split):
            if metric.get('type') in ('CocoMetric', 'mmdet.CocoMetric'):
                metric['type'] = 'tokennorm.CocoMetric'
    has_report = any(metric.get('type') == 'tokennorm.CocoMetric' for metric in evaluators(cfg, 'val'))
    hooks = list(cfg.get('custom_hooks') or [])
    present = {type_name(hook) for hook in hooks}
    added = [hook for hook in HOOKS[0 if has_report else 1 :] if type_name(hook) not in present]
    cfg.custom_hooks = [*hooks, *added]
