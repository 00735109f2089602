"""The report hook: after a real training run, and after one that breaks it."""

import json
import logging
import re
from types import SimpleNamespace

import pytest
from mmengine.hooks import CheckpointHook

from experiments.shapes import CLASSES
from tokennorm.report.hook import ReportHook


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
