"""Config entries behind the report: hotcoco evaluates COCO data, and a hook writes the report after training."""

from collections.abc import MutableMapping
from typing import Any

from mmengine.config import Config

HOOKS = (dict(type='tokennorm.ReportHook'), dict(type='tokennorm.LambdaHook', interval=100))


def use_report(cfg: Config) -> None:
    """Sets `tokennorm.CocoMetric` instead of mmdet's, which gives the same values, and adds the report's hooks.

    The hooks are `tokennorm.ReportHook`, and `tokennorm.LambdaHook` for the curves of lambda. A config whose validation
    is not COCO's, a classifier's for example, gets no hook.

    Args:
        cfg: A whole config, changed in place.
    """
    for split in ('val', 'test'):
        for metric in _metrics(cfg, split):
            if metric.get('type') in ('CocoMetric', 'mmdet.CocoMetric'):
                metric['type'] = 'tokennorm.CocoMetric'
    if not any(metric.get('type') == 'tokennorm.CocoMetric' for metric in _metrics(cfg, 'val')):
        return
    hooks = list(cfg.get('custom_hooks') or [])
    present = {_name(hook) for hook in hooks}
    added = [hook for hook in HOOKS if _name(hook) not in present]
    cfg.custom_hooks = [*hooks, *added]


def _name(entry: MutableMapping[str, Any]) -> str:
    kind = entry['type']
    return (kind if isinstance(kind, str) else kind.__name__).rpartition('.')[2]


def _metrics(cfg: Config, split: str) -> list[MutableMapping[str, Any]]:
    """The metrics of a split's evaluator that are given as dicts."""
    evaluator = cfg.get(f'{split}_evaluator') or []
    evaluator = evaluator if isinstance(evaluator, list | tuple) else [evaluator]
    return [metric for metric in evaluator if isinstance(metric, MutableMapping)]
