"""The report hook: while training runs, after it, and after a run that breaks it."""

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from mmengine.hooks import CheckpointHook
from mmengine.runner import EpochBasedTrainLoop

from experiments.shapes import CLASSES
from tests.helpers.detections import make_truth, noisy
from tokennorm.checkpoints import Checkpoint
from tokennorm.report.hook import ReportHook
from tokennorm.report.page import is_running

pytestmark = pytest.mark.usefixtures('plain_files')


def test_a_training_run_ends_with_a_report(demo_trained):
    numbers = json.loads((demo_trained / 'report.json').read_text())
    assert numbers['results']['bbox']['summary']['mAP'] >= 0
    assert numbers['config_name'] == 'retinanet_pvt-mini-dtn-dpn_fpn_shapes'
    assert re.fullmatch(r'Trained on \d+ images for 1 epochs?, in [\d.]+ min', numbers['training'])
    assert numbers['checkpoint'] == 'best_coco_bbox_mAP_epoch_1.pth'
    assert [entry['name'] for entry in numbers['results']['bbox']['classes']] == list(CLASSES)
    text = (demo_trained / 'report.html').read_text()
    for part in ('Training loss', 'Learning rate', 'Worst images', 'stride 8', CLASSES[0]):
        assert part in text, part
    detections = json.loads((demo_trained / 'report.bbox.json').read_text())
    assert {detection['image_id'] for detection in detections} == {1, 2, 3}


def test_the_best_checkpoint_has_its_own_thresholds(demo_trained):
    """Where a resumed run finds no better one, thresholds.json is that of the end of training."""
    noted = json.loads((demo_trained / 'thresholds.json').read_text())
    assert Checkpoint.read(demo_trained / noted['checkpoint']).meta['thresholds'] == noted['classes']


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


def running_runner(tmp_path, epochs=3):
    """A runner after some epochs of a run, with an annotation file and detections of every object."""
    truth = make_truth()
    path = tmp_path / 'truth.json'
    path.write_text(json.dumps(truth))
    metric = SimpleNamespace(
        detections=dict(bbox=noisy(truth)), ann_file=str(path), category_ids=None, max_detections=100, img_ids=None
    )
    loop = EpochBasedTrainLoop.__new__(EpochBasedTrainLoop)
    vars(loop).update(_epoch=0, _max_epochs=epochs, _iter=0, _max_iters=10 * epochs)
    dataloader = SimpleNamespace(dataset=SimpleNamespace(data_prefix={}))
    val_loop = SimpleNamespace(evaluator=SimpleNamespace(metrics=[metric]), dataloader=dataloader, run=None)
    return SimpleNamespace(
        work_dir=str(tmp_path),
        cfg=None,
        hooks=[CheckpointHook(1)],
        logger=logging.getLogger('report'),
        train_loop=loop,
        train_dataloader=SimpleNamespace(dataset=[0] * 7),
        val_loop=val_loop,
        message_hub=SimpleNamespace(runtime_info={}),
        iter=0,
        epoch=0,
    )


def end_epoch(runner, hook, epoch):
    runner.epoch = runner.train_loop._epoch = epoch
    runner.iter = runner.train_loop._iter = 10 * epoch
    hook.after_val_epoch(runner)


def test_the_page_of_a_running_training(tmp_path, monkeypatch):
    clock = iter(range(1000, 10**6, 100))
    monkeypatch.setattr('tokennorm.report.hook.time', SimpleNamespace(time=lambda: next(clock)))
    monkeypatch.setattr('tokennorm.report.hook.MOST_TIME', 2)
    written = []
    monkeypatch.setattr(
        'tokennorm.report.page.write_atomically',
        lambda path, content: written.append(Path(path).name) or Path(path).write_bytes(content),
    )
    runner, hook = running_runner(tmp_path), ReportHook()
    page = tmp_path / 'report.html'
    hook.before_train(runner)
    end_epoch(runner, hook, 1)
    first = page.read_text()
    assert '<meta http-equiv="refresh" content="30">' in first
    assert 'Training is running: epoch 1 of 3.' in first
    assert 'validation after epoch 1' in first
    assert ('id="classes"' in first, 'id="errors"' in first, 'id="worst"' in first) == (True, False, False)
    assert is_running(page)
    end_epoch(runner, hook, 2)
    assert 'epoch 2 of 3' in page.read_text()
    assert written == ['report.html'] * 2
    assert not (tmp_path / 'report.json').exists()
    end_epoch(runner, hook, 3)  # the whole report follows at once
    assert written == ['report.html'] * 2
    hook.after_train(runner)
    assert written[2:] == ['report.json', 'thresholds.json', 'report.html']
    assert 'http-equiv' not in page.read_text()
    assert 'id="errors"' in page.read_text()
    whole = page.read_text()
    hook.on_exit(runner)
    assert page.read_text() == whole


def test_a_page_that_would_cost_too_much_is_left_out(tmp_path, monkeypatch):
    clock = iter([0, 100, 101, 102, 103, 104, 105, 200, 201, 300, 310, 320])
    monkeypatch.setattr('tokennorm.report.hook.time', SimpleNamespace(time=lambda: next(clock)))
    calls = []
    monkeypatch.setattr('tokennorm.report.hook.report_on', lambda runner, *_: calls.append(runner.epoch))
    runner, hook = running_runner(tmp_path, epochs=9), ReportHook()
    hook.before_train(runner)
    hook.cost = 5.5
    end_epoch(runner, hook, 1)  # 5.5 seconds of 100
    hook.cost = 5.0
    hook.written = 0
    end_epoch(runner, hook, 2)
    assert calls == [2]


def test_a_run_that_ends_early_says_so(tmp_path, monkeypatch):
    runner, hook = running_runner(tmp_path), ReportHook()
    hook.before_train(runner)
    end_epoch(runner, hook, 1)
    hook.on_exit(runner)
    text = (tmp_path / 'report.html').read_text()
    assert 'http-equiv' not in text
    assert 'Training is running' not in text
    assert 'Training ended early.' in text


def test_resuming_a_complete_run_whose_page_is_running_writes_it(tmp_path, monkeypatch):
    runner, hook = running_runner(tmp_path), ReportHook()
    hook.before_train(runner)
    end_epoch(runner, hook, 1)  # and a kill before the report was written
    page = tmp_path / 'report.html'
    assert is_running(page)
    resumed, validated = ReportHook(), []
    runner.val_loop.run = lambda: validated.append(True)
    resumed.before_train(runner)
    resumed.after_train(runner)
    assert validated == [True]
    assert not is_running(page)
    whole = page.read_text()
    again = ReportHook()
    again.before_train(runner)
    again.after_train(runner)  # nothing was trained since
    assert (page.read_text(), validated) == (whole, [True])


def test_a_page_that_fails_does_not_end_training(tmp_path, monkeypatch, caplog):
    runner, hook = running_runner(tmp_path), ReportHook()
    runner.val_loop.evaluator.metrics[0].ann_file = None
    hook.before_train(runner)
    end_epoch(runner, hook, 1)
    end_epoch(runner, hook, 2)
    assert not caplog.records
    hook.after_train(runner)
    assert 'was not written' in caplog.text
