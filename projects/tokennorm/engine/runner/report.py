"""Config entries behind the report: hotcoco evaluates COCO data, and a hook writes the report after training."""

from mmengine.config import Config

from tokennorm.datasets.coco.checks import evaluators
from tokennorm.registry import type_name

HOOKS = (dict(type='tokennorm.ReportHook'), dict(type='tokennorm.LambdaHook', interval=100))


def use_report(cfg: Config) -> None:
    """Sets `tokennorm.CocoMetric` instead of mmdet's, which gives the same values, and adds the report's hooks.

    The hooks are `tokennorm.ReportHook`, and `tokennorm.LambdaHook` for the curves of lambda. A config whose validation
    is not COCO's, a classifier's for example, gets no hook.
    """
    for split in ('val', 'test'):
        for metric in evaluators(cfg, split):
            if metric.get('type') in ('CocoMetric', 'mmdet.CocoMetric'):
                metric['type'] = 'tokennorm.CocoMetric'
    if not any(metric.get('type') == 'tokennorm.CocoMetric' for metric in evaluators(cfg, 'val')):
        return
    hooks = list(cfg.get('custom_hooks') or [])
    present = {type_name(hook) for hook in hooks}
    added = [hook for hook in HOOKS if type_name(hook) not in present]
    cfg.custom_hooks = [*hooks, *added]
