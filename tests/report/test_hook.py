"""The report hook: after a real training run, and after one that breaks it."""

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from mmengine.config import Config
from mmengine.hooks import CheckpointHook

from experiments.shapes import CLASSES
from tokennorm.engine.hooks import use_training_hooks
from tokennorm.engine.recipe import use_coco_metric
from tokennorm.report.hook import ReportHook

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'


def test_a_training_run_ends_with_a_report(demo_trained):
    numbers = json.loads((demo_trained / 'report.json').read_text())
    assert numbers['results']['bbox']['summary']['mAP'] >= 0
    assert numbers['config_name'] == 'retinanet_pvt-mini-dtn-dpn_fpn_shapes'
    assert re.fullmatch(r'Trained on \d+ images for 1 epochs?, in [\d.]+ min', numbers['training'])
    assert numbers['checkpoint'] == 'best_coco_bbox_mAP_epoch_1.pth'
    assert [entry['name'] for entry in numbers['results']['bbox']['classes']] == list(CLASSES)
    text = (demo_trained / 'report.html').read_text()
    for part in ('Training loss', 'Learning rate', 'Lambda of the DTN layers', 'Worst images', 'stride 8', CLASSES[0]):
        assert part in text, part
    detections = json.loads((demo_trained / 'report.bbox.json').read_text())
    assert {detection['image_id'] for detection in detections} == {1, 2, 3}


COCO_CONFIGS = sorted(path for path in CONFIGS.rglob('*.py') if '_1x_coco' in path.name)


@pytest.mark.parametrize('config', COCO_CONFIGS[::10], ids=lambda path: path.stem)
def test_coco_configs_get_metric_and_hooks(config):
    cfg = Config.fromfile(config)
    before = [str(hook.type) for hook in cfg.get('custom_hooks') or []]
    for _ in range(2):
        use_coco_metric(cfg)
        use_training_hooks(cfg)
    assert cfg.val_evaluator.type == cfg.test_evaluator.type == 'tokennorm.CocoMetric'
    after = [str(hook.type) for hook in cfg.custom_hooks]
    assert sorted(after) == sorted({*before, 'tokennorm.ReportHook', 'tokennorm.LambdaHook'})


@pytest.mark.parametrize('template', ['epoch_{}.pth', 'ep{:03d}.pth'])
def test_the_report_is_that_of_the_best_checkpoint(tmp_path, monkeypatch, template):
    reports = []
    monkeypatch.setattr('tokennorm.report.hook.report_on', lambda *args: reports.append(args[3:5]))
    metric = SimpleNamespace()
    runner = SimpleNamespace(
        work_dir=str(tmp_path),
        hooks=[SimpleNamespace(), CheckpointHook(1, filename_tmpl=template)],
        logger=logging.getLogger('report'),
        train_loop=None,
        train_dataloader=SimpleNamespace(dataset=[]),
        val_loop=SimpleNamespace(evaluator=SimpleNamespace(metrics=[metric])),
        message_hub=SimpleNamespace(runtime_info={}),
    )
    hook = ReportHook()
    for epoch, best in ((2, 1), (12, 12), (13, 12), (22, 12)):
        runner.epoch, runner.iter = epoch, 10 * epoch
        runner.message_hub.runtime_info['best_ckpt'] = f'run/best_coco_bbox_mAP_{template.format(best)}'
        metric.detections = dict(bbox=epoch)
        hook.after_val_epoch(runner)
        hook.after_train(runner)
    assert [detections for _, detections in reports] == [None, *[dict(bbox=12)] * 3]
    assert [checkpoint for checkpoint, _ in reports][1:] == [f'best_coco_bbox_mAP_{template.format(12)}'] * 3


def test_classifiers_log_lambda():
    cfg = Config.fromfile(CONFIGS / 'imagenet' / 'pvt-tiny_8xb128_in1k.py')
    hooks, evaluator = list(cfg.get('custom_hooks') or []), dict(cfg.val_evaluator)
    use_coco_metric(cfg)
    use_training_hooks(cfg)
    assert list(cfg.custom_hooks) == [*hooks, dict(type='tokennorm.LambdaHook', interval=100)]
    assert cfg.val_evaluator == evaluator
