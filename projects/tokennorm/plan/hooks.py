"""The hooks of a run: those of its recipe, and those of `training_hooks`, by names that a config can set to None."""

from collections.abc import Iterable, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.hooks import CheckpointHook, EarlyStoppingHook

from tokennorm.base.messages import UserError
from tokennorm.base.ranks import print_once
from tokennorm.config.tree import as_list, evaluators, is_classifier
from tokennorm.evaluation.average_precision import COCO_AP, COCO_AR
from tokennorm.registry import HOOKS, type_name

KEPT_CHECKPOINTS = 2  # besides the best one
LEAST_GAIN = 5e-4  # of the metric; mmdet rounds AP to 0.001
EMA = dict(  # the momentum is that of mmdet's RTMDet
    type='EMAHook', ema_type='mmdet.ExpMomentumEMA', momentum=2e-4, update_buffers=True, priority='ABOVE_NORMAL'
)
UPSTREAM = ('runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler', 'checkpoint')  # mmengine 0.10.12
DATA_ERRORS = dict(type='tokennorm.DataErrorHook')
FORMER = 'tokennorm.LambdaHook'


def training_hooks(metrics: Sequence[str], ema: bool = False, patience: int | None = None) -> dict[str, dict[str, Any]]:
    """Returns the hooks of a training run besides mmengine's. Those of one priority are called in this order."""
    best = next(iter(metrics), None)
    if patience is not None and best is None:
        raise UserError('--patience needs a validation by COCO AP or accuracy; this config has none')
    stop = dict(type='EarlyStoppingHook', monitor=best, rule='greater', patience=patience, min_delta=LEAST_GAIN)
    hooks = dict(
        data_errors=DATA_ERRORS,
        non_finite=dict(type='tokennorm.NonFiniteHook'),  # before a checkpoint is written
        checkpoint=dict(type='tokennorm.CheckpointHook', interval=1),
        early_stopping=stop,
        ema=EMA,
        report=dict(type='tokennorm.ReportHook'),
        progress=dict(type='tokennorm.ProgressHook', metric=best),
        train_batches=dict(type='tokennorm.TrainBatchesHook'),
        cpu_speed=dict(type='tokennorm.CPUSpeedHook'),
        summary=dict(type='tokennorm.SummaryHook'),
    )
    wanted = dict(early_stopping=patience is not None, ema=ema, cpu_speed=get_device() == 'cpu')
    wanted['report'] = any('bbox_' in name or 'segm_' in name for name in metrics)
    return {name: hook for name, hook in hooks.items() if wanted.get(name, True)}


def use_training_hooks(
    cfg: Config, ema: bool = False, patience: int | None = None, most_epochs: int | None = None, own_data: bool = True
) -> None:
    """Adds the hooks of a training run to `default_hooks`. Those of the config stay, and a name with None is left out.

    Args:
        cfg: Config of a training run, changed in place.
        ema: Average the weights over training, and validate and save the averages.
        patience: Stop after so many validations without a better metric.
        most_epochs: Epochs between two checkpoints, at most.
        own_data: The recipe is used for other data, and the latest two checkpoints are kept. A recipe as it is keeps
            all of them, as mmengine does, and a second CheckpointHook.
    """
    cfg.setdefault('default_hooks', {})  # returns a copy
    metrics, hooks = metrics_of(cfg), list(cfg.get('custom_hooks') or [])
    for hook in [hook for hook in hooks if own_data and type_name(hook) == 'CheckpointHook']:  # files written twice
        hooks.remove(hook)
        cfg.default_hooks.checkpoint = dict(cfg.default_hooks.get('checkpoint') or {}, **hook)
    cfg.custom_hooks = hooks
    former = ['cpu_speed'] if get_device() != 'cpu' else []  # of a config that was written on a CPU
    if patience is not None:
        former += [name for name, hook in cfg.default_hooks.items() if hook and type_name(hook) == 'EarlyStoppingHook']
        cfg.custom_hooks = hooks = [hook for hook in hooks if type_name(hook) != 'EarlyStoppingHook']
    for name in former:
        cfg.default_hooks.pop(name, None)
    present = {type_name(hook) for hook in (*hooks, *cfg.default_hooks.values()) if hook is not None}
    for name, hook in training_hooks(metrics, ema, patience).items():
        if name == 'checkpoint' or type_name(hook) not in present:
            cfg.default_hooks.setdefault(name, hook)
    if (checkpoint := cfg.default_hooks.checkpoint) is not None:
        if own_data:
            checkpoint.setdefault('max_keep_ckpts', KEPT_CHECKPOINTS)
        if metrics and checkpoint.get('save_best', 'auto') == 'auto':  # perhaps the AP of a class
            checkpoint.update(save_best=metrics[0], rule='greater')
        if most_epochs is not None and checkpoint.get('by_epoch', True) and checkpoint.get('interval', 1) > most_epochs:
            checkpoint['interval'] = most_epochs
    _make_resumable(CheckpointHook, cfg.default_hooks.checkpoint)  # not a second one
    _make_resumable(EarlyStoppingHook, *cfg.custom_hooks, *cfg.default_hooks.values())


def _make_resumable(upstream: type, *hooks: dict[str, Any] | None) -> None:
    """Replaces one of mmengine's hooks, which forgets its state when training is resumed, by that of this package."""
    name = upstream.__name__
    for hook in hooks:
        if hook is not None and hook.get('type') in (name, f'mmengine.{name}', upstream):
            hook['type'] = f'tokennorm.{name}'


def use_common_hooks(cfg: Config) -> None:
    """Adds the hook of every run, and leaves out one of earlier versions, which projects/experiments has now."""
    cfg.setdefault('default_hooks', {})
    cfg.default_hooks.setdefault('data_errors', DATA_ERRORS)
    hooks = cfg.get('custom_hooks') or []
    if any(hook.get('type') == FORMER for hook in hooks) and HOOKS.get(FORMER) is None:
        print_once(f'custom_hooks: {FORMER} is left out; custom_imports of experiments.layer_statistics has it')
        cfg.custom_hooks = [hook for hook in hooks if hook.get('type') != FORMER]


def metrics_of(cfg: Config) -> list[str]:
    """Returns the metrics of a validation by COCO AP or accuracy, or [].

    The first one selects the best checkpoint: mask AP where masks are learned, or box AP, or top-1 accuracy.
    """
    if type_name(cfg.get('val_cfg') or {}) == 'TeacherStudentValLoop':  # its names begin with teacher or student
        return []
    for evaluator in evaluators(cfg, 'val'):
        if type_name(evaluator) == 'Accuracy' and is_classifier(cfg):
            is_plain = 1 in as_list(evaluator.get('topk', 1)) and not evaluator.get('thrs')  # these are in the names
            return [f'{evaluator.get("prefix") or "accuracy"}/top1'] if is_plain else []
        if type_name(evaluator) == 'CocoMetric':
            iou_types, items = as_list(evaluator.get('metric', 'bbox')), as_list(evaluator.get('metric_items') or [])
            return coco_metrics(evaluator.get('prefix') or 'coco', iou_types, items)
    return []


def coco_metrics(prefix: str, iou_types: Iterable[str], items: Sequence[str] | None) -> list[str]:
    """Returns the names of the values of a COCO metric, those of masks first; by default it gives all items."""
    names = []
    for iou_type in sorted(iou_types, reverse=True):  # segm before bbox
        is_proposal = iou_type.startswith('proposal')
        of_type = items or (COCO_AR if is_proposal else COCO_AP)
        names += [f'{prefix}/{item}' if is_proposal else f'{prefix}/{iou_type}_{item}' for item in of_type]
    return names
