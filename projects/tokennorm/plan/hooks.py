"""The hooks of a training run, added to those of its recipe."""

from collections.abc import Iterable, Sequence

from mmengine.config import Config

from tokennorm.base.messages import UserError
from tokennorm.config.tree import evaluators, is_classifier
from tokennorm.evaluation.average_precision import COCO_AP, COCO_AR
from tokennorm.registry import type_name

KEPT_CHECKPOINTS = 2  # besides the best one
LEAST_GAIN = 5e-4  # of the metric; mmdet rounds AP to 0.001
EMA = dict(  # the momentum is that of mmdet's RTMDet
    type='EMAHook', ema_type='mmdet.ExpMomentumEMA', momentum=2e-4, update_buffers=True, priority='ABOVE_NORMAL'
)


def use_training_hooks(
    cfg: Config, ema: bool = False, patience: int | None = None, most_epochs: int | None = None, own_data: bool = True
) -> None:
    """Adds the hooks of a training run to those of its config, which stay as they are.

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

    # A loss or gradient that is not finite; before a checkpoint is written.
    cfg.default_hooks.setdefault('non_finite', dict(type='tokennorm.NonFiniteHook'))

    # Checkpoints. `make_resumable` replaces the type of the hook.
    cfg.default_hooks.setdefault('checkpoint', dict(type='CheckpointHook', interval=1))
    for hook in [hook for hook in hooks if own_data and type_name(hook) == 'CheckpointHook']:  # files written twice
        hooks.remove(hook)
        cfg.default_hooks.checkpoint = dict(cfg.default_hooks.checkpoint or {}, **hook)
    if (checkpoint := cfg.default_hooks.checkpoint) is not None:
        if own_data:
            checkpoint.setdefault('max_keep_ckpts', KEPT_CHECKPOINTS)
        if metrics and checkpoint.get('save_best', 'auto') == 'auto':  # perhaps the AP of a class
            checkpoint.update(save_best=metrics[0], rule='greater')
        if most_epochs is not None and checkpoint.get('by_epoch', True) and checkpoint.get('interval', 1) > most_epochs:
            checkpoint['interval'] = most_epochs

    # mmengine's hook forgets its count when training is resumed.
    if patience is not None:
        if not metrics:
            raise UserError('--patience needs a validation by COCO AP or accuracy; this config has none')
        hooks = [hook for hook in hooks if type_name(hook) != 'EarlyStoppingHook']
        stop = dict(type='EarlyStoppingHook', monitor=metrics[0], rule='greater', patience=patience)
        hooks.append(stop | dict(min_delta=LEAST_GAIN))
    for hook in filter(None, (*hooks, *cfg.default_hooks.values())):
        if hook.get('type') == 'EarlyStoppingHook':
            hook['type'] = 'tokennorm.EarlyStoppingHook'

    # The report, curves of lambda, a bar and a line per epoch, what the network is trained on, and averaged weights.
    has_boxes = any('bbox_' in name or 'segm_' in name for name in metrics)
    added = [dict(type='tokennorm.ReportHook')] if has_boxes else []
    added += [
        dict(type='tokennorm.LambdaHook', interval=100),
        dict(type='tokennorm.ProgressHook', metric=next(iter(metrics), None)),
        dict(type='tokennorm.TrainBatchesHook'),
    ]
    added += [EMA] if ema else []
    present = {type_name(hook) for hook in (*hooks, *cfg.default_hooks.values()) if hook is not None}
    cfg.custom_hooks = hooks + [hook for hook in added if type_name(hook) not in present]


def metrics_of(cfg: Config) -> list[str]:
    """Returns the metrics of a validation by COCO AP or accuracy, or [].

    The first one selects the best checkpoint: mask AP where masks are learned, or box AP, or top-1 accuracy.
    """
    if type_name(cfg.get('val_cfg') or {}) == 'TeacherStudentValLoop':  # its names begin with teacher or student
        return []
    for evaluator in evaluators(cfg, 'val'):
        if type_name(evaluator) == 'Accuracy' and is_classifier(cfg):
            is_plain = 1 in _list(evaluator.get('topk', 1)) and not evaluator.get('thrs')  # these are in the names
            return [f'{evaluator.get("prefix") or "accuracy"}/top1'] if is_plain else []
        if type_name(evaluator) == 'CocoMetric':
            iou_types, items = _list(evaluator.get('metric', 'bbox')), _list(evaluator.get('metric_items') or [])
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


def _list(value: object) -> list:
    return list(value) if isinstance(value, list | tuple) else [value]
