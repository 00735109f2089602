"""Hooks of training, and the function that adds them to a config."""

from mmengine.config import Config

from tokennorm.config.tree import evaluators, is_classifier
from tokennorm.engine.hooks.checkpoint import CheckpointHook
from tokennorm.engine.hooks.data_errors import DataError, DataErrorHook
from tokennorm.engine.hooks.early_stopping import EarlyStoppingHook
from tokennorm.engine.hooks.lambdas import LambdaHook
from tokennorm.engine.hooks.non_finite import NonFiniteError, NonFiniteHook
from tokennorm.engine.hooks.saturation import SaturationHook
from tokennorm.engine.hooks.summary import SummaryHook, describe_data, every
from tokennorm.messages import UserError
from tokennorm.registry import type_name

__all__ = [
    'CheckpointHook',
    'DataError',
    'DataErrorHook',
    'EarlyStoppingHook',
    'LambdaHook',
    'NonFiniteError',
    'NonFiniteHook',
    'SaturationHook',
    'SummaryHook',
    'describe_data',
    'every',
    'metric_of',
    'use_training_hooks',
]

KEPT_CHECKPOINTS = 2  # besides the best one
LEAST_GAIN = 5e-4  # of the metric; mmdet rounds AP to 0.001
EMA_MOMENTUM = 2e-4  # as in mmdet's RTMDet


def use_training_hooks(
    cfg: Config, ema: bool = False, patience: int | None = None, most_epochs: int | None = None
) -> None:
    """Adds the hooks of a training run to those of its config, which stay as they are.

    Args:
        cfg: Config of a training run, changed in place.
        ema: Average the weights over training, and validate and save the averages.
        patience: Stop after so many validations without a better metric.
        most_epochs: Epochs between two checkpoints, at most.
    """
    cfg.setdefault('default_hooks', {})  # returns a copy
    metric = metric_of(cfg)

    # A loss or gradient that is not finite; before a checkpoint is written.
    cfg.default_hooks.setdefault('non_finite', dict(type='tokennorm.NonFiniteHook'))

    # Checkpoints. `make_resumable` replaces the type of the hook.
    cfg.default_hooks.setdefault('checkpoint', dict(type='CheckpointHook', interval=1))
    if (checkpoint := cfg.default_hooks.checkpoint) is not None:
        checkpoint.setdefault('max_keep_ckpts', KEPT_CHECKPOINTS)
        if metric is not None and 'save_best' not in checkpoint:
            checkpoint.update(save_best=metric, rule='greater')
        if most_epochs is not None and checkpoint.get('by_epoch', True) and checkpoint.get('interval', 1) > most_epochs:
            checkpoint['interval'] = most_epochs

    # The report of a detector, and curves of lambda.
    hooks = list(cfg.get('custom_hooks') or [])
    present = {type_name(hook) for hook in hooks}
    if 'ReportHook' not in present and any(type_name(one) == 'CocoMetric' for one in evaluators(cfg, 'val')):
        hooks.append(dict(type='tokennorm.ReportHook'))
    if 'LambdaHook' not in present:
        hooks.append(dict(type='tokennorm.LambdaHook', interval=100))

    # Averaged weights, which validation and the saved `state_dict` use.
    if ema and 'EMAHook' not in present:
        average = dict(type='EMAHook', ema_type='mmdet.ExpMomentumEMA', momentum=EMA_MOMENTUM, update_buffers=True)
        hooks.append(average | dict(priority='ABOVE_NORMAL'))

    if patience is not None:
        if metric is None:
            raise UserError('--patience needs a validation by COCO AP or accuracy; this config has none')
        stop = dict(type='tokennorm.EarlyStoppingHook', monitor=metric, rule='greater', patience=patience)
        hooks = [hook for hook in hooks if type_name(hook) != 'EarlyStoppingHook']
        hooks.append(stop | dict(min_delta=LEAST_GAIN))
    cfg.custom_hooks = hooks


def metric_of(cfg: Config) -> str | None:
    """Returns the metric that selects the best checkpoint: top-1 accuracy, mask AP where masks are learned, or box AP.

    None where nothing validates, or by other metrics than these.
    """
    for evaluator in evaluators(cfg, 'val'):
        kind = type_name(evaluator)
        if kind == 'CocoMetric':
            metrics = evaluator.get('metric', 'bbox')
            metrics = [metrics] if isinstance(metrics, str) else metrics
            prefix = evaluator.get('prefix', 'coco')
            return f'{prefix}/segm_mAP' if 'segm' in metrics else f'{prefix}/bbox_mAP'
        if kind == 'Accuracy' and is_classifier(cfg):
            return 'accuracy/top1'
    return None
