"""Hooks of training, and the function that adds them to a config."""

from mmengine.config import Config

from tokennorm.config.tree import evaluators, is_classifier
from tokennorm.evaluation.average_precision import COCO_AP, COCO_AR
from tokennorm.messages import UserError
from tokennorm.registry import type_name

KEPT_CHECKPOINTS = 2  # besides the best one
LEAST_GAIN = 5e-4  # of the metric; mmdet rounds AP to 0.001
EMA_MOMENTUM = 2e-4  # as in mmdet's RTMDet


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
    metrics = metrics_of(cfg)
    hooks = list(cfg.get('custom_hooks') or [])
    of_default = [hook for hook in cfg.default_hooks.values() if hook is not None]
    loop = cfg.get('train_cfg') or {}

    # A loss or gradient that is not finite; before a checkpoint is written.
    cfg.default_hooks.setdefault('non_finite', dict(type='tokennorm.NonFiniteHook'))

    # Checkpoints. `make_resumable` replaces the type of the hook.
    cfg.default_hooks.setdefault('checkpoint', dict(type='CheckpointHook', interval=1))
    for hook in [hook for hook in hooks if own_data and type_name(hook) == 'CheckpointHook']:  # files written twice
        hooks.remove(hook)
        cfg.default_hooks.checkpoint = dict(cfg.default_hooks.checkpoint or {}, **hook)
    if 'max_iters' in loop:  # epochs have no end there, and nothing that counts them would come
        cfg.log_processor = dict(cfg.get('log_processor') or dict(type='LogProcessor'), by_epoch=False)
        if (cfg.default_hooks.checkpoint or {}).get('by_epoch', True):
            interval = loop.get('val_interval', loop.max_iters)
            cfg.default_hooks.checkpoint = dict(cfg.default_hooks.checkpoint or {}, by_epoch=False, interval=interval)
    if (checkpoint := cfg.default_hooks.checkpoint) is not None:
        if own_data:
            checkpoint.setdefault('max_keep_ckpts', KEPT_CHECKPOINTS)
        if metrics and 'save_best' not in checkpoint:
            checkpoint.update(save_best=metrics[0], rule='greater')
        if most_epochs is not None and checkpoint.get('by_epoch', True) and checkpoint.get('interval', 1) > most_epochs:
            checkpoint['interval'] = most_epochs

    # The report of a detector, and curves of lambda.
    present = {type_name(hook) for hook in hooks + of_default}
    for hook in hooks + of_default:
        if hook.get('type') == 'EarlyStoppingHook':  # mmengine's forgets its count when training is resumed
            hook['type'] = 'tokennorm.EarlyStoppingHook'
    if 'ReportHook' not in present and any('bbox_' in name or 'segm_' in name for name in metrics):
        hooks.append(dict(type='tokennorm.ReportHook'))
    if 'LambdaHook' not in present:
        hooks.append(dict(type='tokennorm.LambdaHook', interval=100))

    # What people see: a bar and a line per epoch, and what the network is trained on.
    seen = dict(ProgressHook=dict(metric=next(iter(metrics), None)), TrainBatchesHook={})
    hooks += [dict(type=f'tokennorm.{name}', **given) for name, given in seen.items() if name not in present]

    # Averaged weights, which validation and the saved `state_dict` use.
    if ema and 'EMAHook' not in present:
        average = dict(type='EMAHook', ema_type='mmdet.ExpMomentumEMA', momentum=EMA_MOMENTUM, update_buffers=True)
        hooks.append(average | dict(priority='ABOVE_NORMAL'))

    if patience is not None:
        if not metrics:
            raise UserError('--patience needs a validation by COCO AP or accuracy; this config has none')
        stop = dict(type='tokennorm.EarlyStoppingHook', monitor=metrics[0], rule='greater', patience=patience)
        hooks = [hook for hook in hooks if type_name(hook) != 'EarlyStoppingHook']
        for name in [key for key, hook in cfg.default_hooks.items() if hook and type_name(hook) == 'EarlyStoppingHook']:
            cfg.default_hooks.pop(name)
        hooks.append(stop | dict(min_delta=LEAST_GAIN))
    cfg.custom_hooks = hooks


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
        prefix = evaluator.get('prefix') or 'coco'
        if type_name(evaluator) == 'CocoMetric':
            chosen, kinds = evaluator.get('metric_items'), sorted(_list(evaluator.get('metric', 'bbox')), reverse=True)
            of_boxes = [
                f'{kind}_{item}' for kind in kinds if kind != 'proposal' for item in _list(chosen or [*COCO_AP])
            ]
            of_proposals = _list(chosen or [*COCO_AR]) if 'proposal' in kinds else []
            return [f'{prefix}/{name}' for name in of_boxes + of_proposals]
    return []


def _list(value: object) -> list:
    return list(value) if isinstance(value, list | tuple) else [value]
