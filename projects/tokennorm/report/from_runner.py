"""Makes the report's source from a runner of mmengine that has evaluated a detector."""

from pathlib import Path
from typing import Any

from mmengine.runner import Runner

from tokennorm.report.page import Source, write_report


def report_on(
    runner: Runner, split: str, path: str | Path, checkpoint: str | None = None, detections: dict | None = None
) -> dict[str, Any]:
    """Writes the report of a runner's last evaluation, or of the detections of an earlier one."""
    loop, metric = getattr(runner, f'{split}_loop'), _metric(runner, split)
    if metric is None:
        raise ValueError(
            f'{split}_evaluator is not a tokennorm.CocoMetric, which `tokennorm train` sets; '
            '`tokennorm test CONFIG WORK_DIR --report` writes a report'
        )
    if not metric.detections or metric.ann_file is None:
        raise ValueError(f'the {split} data was not evaluated against an annotation file')
    dataset = loop.dataloader.dataset
    while not hasattr(dataset, 'data_prefix') and hasattr(dataset, 'dataset'):
        dataset = dataset.dataset
    source = Source(
        title=Path(runner.cfg.filename).stem if runner.cfg.filename else runner.experiment_name,
        ann_file=metric.ann_file,
        detections=detections or metric.detections,
        image_dir=getattr(dataset, 'data_prefix', {}).get('img'),
        category_ids=metric.category_ids,
        work_dir=runner.work_dir,
        cfg=runner.cfg,
        checkpoint=checkpoint,
        max_detections=metric.max_detections,
    )
    return write_report(source, path)


def detections_of(runner: Runner, split: str) -> dict[str, Any]:
    """Returns the detections of the last evaluation by 'bbox' or 'segm'; empty without `tokennorm.CocoMetric`."""
    return getattr(_metric(runner, split), 'detections', {})


def _metric(runner: Runner, split: str) -> Any:
    loop = getattr(runner, f'{split}_loop')
    metrics = [] if loop is None else loop.evaluator.metrics
    return next((metric for metric in metrics if hasattr(metric, 'detections')), None)
