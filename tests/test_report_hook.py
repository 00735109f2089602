"""The report hook: after a real training run, after one that breaks it, and its pictures."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.structures import InstanceData

from tokennorm.datasets import CLASSES
from tokennorm.datasets.drawing import tile
from tokennorm.engine.config import use_report
from tokennorm.report.hook import ReportHook, enlarge, plot_curves

CONFIGS = Path(__file__).resolve().parents[1] / 'configs'


@pytest.fixture(scope='module')
def trained(demo_trained):
    return demo_trained


def test_a_training_run_ends_with_a_report(trained):
    numbers = json.loads((trained / 'report.json').read_text())
    assert numbers['results']['bbox']['summary']['mAP'] >= 0
    assert numbers['title'] == 'retinanet_pvt-mini-dtn-dpn_fpn_shapes'
    assert numbers['checkpoint'] == 'end of training, epoch 1'
    assert [entry['name'] for entry in numbers['results']['bbox']['classes']] == list(CLASSES)
    text = (trained / 'report.html').read_text()
    for part in ('Training loss', 'Learning rate', 'Lambda of the DTN layers', 'Worst images', 'stride 8', CLASSES[0]):
        assert part in text, part
    detections = json.loads((trained / 'report.bbox.json').read_text())
    assert {detection['image_id'] for detection in detections} == {1, 2, 3}
    summary = (trained / 'summary.md').read_text()
    assert f'- {trained / "report.html"}' in summary
    assert 'coco/bbox_mAP at the end: ' in summary
    assert all((trained / name).is_file() for name in ('curves.png', 'predictions.png'))


def test_a_report_that_fails_is_a_warning_of_one_line(tmp_path, caplog):
    runner = SimpleNamespace(
        work_dir=str(tmp_path / 'gone'),
        logger=logging.getLogger('report'),
        train_loop=None,
        iter=3,
        epoch=0,
        val_loop=None,
        experiment_name='x',
        val_dataloader=None,
    )
    with caplog.at_level(logging.WARNING, logger='report'):
        ReportHook().after_train(runner)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 4
    assert all('\n' not in message for message in messages)
    path = tmp_path / 'gone' / 'report.html'
    assert messages[0] == f'{path} was not written (ValueError: val_evaluator is not a tokennorm.CocoMetric)'
    caplog.clear()
    hook = ReportHook()
    hook.before_train(runner)  # nothing is trained after it, so there is nothing to report on
    hook.after_train(runner)
    assert 'report.html' not in caplog.text
    assert 'summary.md was not written' in caplog.text


COCO_CONFIGS = sorted(path for path in CONFIGS.rglob('*.py') if '_1x_coco' in path.name)


@pytest.mark.parametrize('config', COCO_CONFIGS[::10], ids=lambda path: path.stem)
def test_coco_configs_get_metric_and_hooks(config):
    cfg = Config.fromfile(config)
    before = [str(hook.type) for hook in cfg.get('custom_hooks') or []]
    use_report(cfg)
    use_report(cfg)
    assert cfg.val_evaluator.type == cfg.test_evaluator.type == 'tokennorm.CocoMetric'
    after = [str(hook.type) for hook in cfg.custom_hooks]
    assert sorted(after) == sorted({*before, 'tokennorm.ReportHook', 'tokennorm.LambdaHook'})


def test_configs_of_other_evaluations_stay_as_they_are():
    for path in ('imagenet/pvt-tiny_8xb128_in1k.py', 'demo/retinanet_pvt-mini_fpn_shapes.py'):
        cfg = Config.fromfile(CONFIGS / path)
        hooks, evaluator = list(cfg.get('custom_hooks') or []), cfg.val_evaluator.type
        use_report(cfg)
        assert list(cfg.get('custom_hooks') or []) == hooks
        assert cfg.val_evaluator.type == evaluator.replace('CocoMetric', 'tokennorm.CocoMetric')


def test_enlarge_scales_boxes_and_masks():
    masks = torch.zeros(1, 4, 6, dtype=torch.bool)
    masks[0, 1, 2] = True
    instances = InstanceData(bboxes=torch.tensor([[1.0, 2.0, 3.0, 4.0]]), masks=masks)
    enlarge(instances, 2.0, (8, 12))
    assert instances.bboxes.tolist() == [[2, 4, 6, 8]]
    assert instances.masks[0].nonzero().tolist() == [[2, 4], [2, 5], [3, 4], [3, 5]]


def test_tile_keeps_every_image(tmp_path):
    images = [np.full((4, 3 + i, 3), i, np.uint8) for i in range(3)]
    sheet = tile(images, columns=2, gap=1)
    assert sheet.shape == (10, 12, 3)
    for i, (y, x) in enumerate([(0, 0), (0, 6), (5, 0)]):
        assert (sheet[y : y + 4, x : x + 3 + i] == i).all()


def test_curves_are_drawn_with_and_without_points(tmp_path):
    for name, curve in [('some', {1: 2.0, 5: 1.0}), ('none', {})]:
        plot_curves(tmp_path / f'{name}.png', curve, curve, 'ap')
    some, none = (cv2.imread(str(tmp_path / f'{name}.png')) for name in ('some', 'none'))
    assert some.shape == none.shape == (720, 960, 3)
    assert (some != none).any()
