"""Config entries behind the report: hotcoco evaluates COCO data, and a hook writes the report after training."""

from collections.abc import MutableMapping
from typing import Any

from mmengine.config import Config


def use_report(cfg: Config) -> None:
    """Sets `tokennorm.CocoMetric` instead of mmdet's, which gives the same values, and adds a `tokennorm.ReportHook`.

    A config whose validation is not COCO's, a classifier's for example, gets no hook.

    Args:
        cfg: A whole config, changed in place.
    """
    for split in ('val', 'test'):
        for metric in _metrics(cfg, split):
            if metric.get('type') in ('CocoMetric', 'mmdet.CocoMetric'):
                metric['type'] = 'tokennorm.CocoMetric'
    hooks = cfg.get('custom_hooks') or []
    has_hook = any(str(hook['type']).endswith('ReportHook') for hook in hooks)
    if not has_hook and any(metric.get('type') == 'tokennorm.CocoMetric' for metric in _metrics(cfg, 'val')):
        cfg.custom_hooks = [*hooks, dict(type='tokennorm.ReportHook')]


def _metrics(cfg: Config, split: str) -> list[MutableMapping[str, Any]]:
    """The metrics of a split's evaluator that are given as dicts."""
    evaluator = cfg.get(f'{split}_evaluator') or []
    evaluator = evaluator if isinstance(evaluator, list | tuple) else [evaluator]
    return [metric for metric in evaluator if isinstance(metric, MutableMapping)]
