"""The config of a training run or an evaluation: a file, its data, options, report and work directory."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mmengine.config import Config

from tokennorm.config_files import check_options, merge_options, read_config
from tokennorm.config_tree import evaluators, is_classifier, model_of
from tokennorm.engine.data import use_data_folder, use_loader_defaults
from tokennorm.messages import UserError, user_errors
from tokennorm.registry import type_name

HOOKS = (dict(type='tokennorm.ReportHook'), dict(type='tokennorm.LambdaHook', interval=100))


def load_config(
    config: str | Path,
    *,
    data: str | Path | None = None,
    image_size: int | None = None,
    work_dir: str | Path | None = None,
    cfg_options: Mapping[str, Any] | None = None,
    launcher: str = 'none',
    local_rank: int = 0,
    needed: tuple[str, ...] = ('train', 'val'),
    fit_anchors: bool = False,
    check: Callable[[Config], None] | None = None,
    adjust: Callable[[Config], None] | None = None,
) -> Config:
    """Returns a config with its data, options and work directory.

    The arguments are those of `tokennorm.train`. `needed` are the splits that `data` must have; `fit_anchors` is passed
    to `use_data_folder`. `check` gets the config before the data is read, which may take a minute; `adjust` changes it
    before `cfg_options` do. Whatever the user can fix raises `UserError`.
    """
    os.environ.setdefault('LOCAL_RANK', str(local_rank))
    cfg = read_config(config)
    with user_errors(ValueError):
        model_of(cfg)
    cfg.launcher = launcher
    options = dict(cfg_options or {})
    check_options(cfg, options)
    if work_dir is not None and 'work_dir' in options:
        raise UserError(f'--work-dir {work_dir} and --cfg-options work_dir={options["work_dir"]}: leave out one')
    chosen = work_dir or options.get('work_dir') or cfg.get('work_dir')
    cfg.work_dir = str(chosen or Path('work_dirs') / Path(cfg.filename).stem)
    if check is not None:
        with user_errors(ValueError):
            check(cfg)
    if data is not None:
        use_data_folder(cfg, str(data), needed, image_size, 'train' in needed, fit_anchors)
    if is_classifier(cfg):
        use_loader_defaults(cfg)
    cfg.setdefault('default_hooks', {})
    cfg.default_hooks.setdefault('non_finite', dict(type='tokennorm.NonFiniteHook'))
    use_report(cfg)
    with user_errors(ValueError):
        if adjust is not None:
            adjust(cfg)
        merge_options(cfg, options)
        model_of(cfg)
    if cfg.default_hooks.non_finite is None:
        del cfg.default_hooks['non_finite']
    return cfg


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
