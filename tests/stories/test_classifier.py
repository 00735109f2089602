"""tools/train.py and tools/test.py with a classifier and a folder of classes that the user names."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from experiments.study.shape_classes import make_shape_classes_dataset
from tests.helpers.commands import tool
from tests.helpers.scalars import logged

ROOT = Path(__file__).resolve().parents[2]
CONFIG = str(ROOT / 'projects' / 'experiments' / 'study' / 'configs' / 'cpu' / 'pretrain_pvt-mini_shape-classes.py')
CLASSES = ('disk-plain', 'square-stripes', 'star-speckle')
OPTIONS = ['train_cfg.max_epochs=1', 'train_dataloader.batch_size=4', 'default_hooks.logger.interval=1']


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Four images of each of three classes a split."""
    made = make_shape_classes_dataset(tmp_path_factory.mktemp('made') / 'classes', 48, 48, image_size=64)
    root = tmp_path_factory.mktemp('data')
    for split in ('train', 'val'):
        for name in CLASSES:
            shutil.copytree(made / split / name, root / split / name)
    return root


@pytest.fixture(scope='module')
def trained(data, tmp_path_factory):
    work_dir = tmp_path_factory.mktemp('work')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('tokennorm.report.hook.ReportHook.after_train', lambda self, runner: None)  # for time
        tool('train')([CONFIG, '--data', str(data), '--work-dir', str(work_dir), '--cfg-options', *OPTIONS])
    return work_dir


def test_training_on_a_named_folder(data, trained):
    checkpoint = torch.load(trained / 'epoch_1.pth', weights_only=False)
    assert checkpoint['state_dict']['head.fc.weight'].shape == (3, 256)
    assert sorted(checkpoint['meta']['dataset_meta']['classes']) == sorted(CLASSES)
    assert checkpoint['meta']['iter'] == 3
    (metrics,) = (entry for entry in logged(trained) if 'accuracy/top1' in entry)
    assert 0 <= metrics['accuracy/top1'] <= 100
    assert 'accuracy/top5' not in metrics
    (log,) = trained.glob('*/*.log')
    assert f'    data           12 images, 3 classes ({data}/train)\n' in log.read_text()
    assert f'    validation     12 images, 3 classes ({data}/val), after every epoch\n' in log.read_text()


@pytest.mark.usefixtures('quick_workers')
def test_testing_prints_metrics_of_the_predictions(data, trained, tmp_path, capsys):
    out = tmp_path / 'predictions.pkl'
    arguments = [CONFIG, str(trained / 'epoch_1.pth'), '--data', str(data), '--work-dir', str(tmp_path)]
    tool('test')([*arguments, '--out', str(out), '--show-dir', 'drawn'])
    printed = capsys.readouterr().out
    assert f'--data: val is {data / "val"}: 12 images of 3 classes, 4 to 4 per class\n--data: ' in printed
    assert '--data: 3 classes: val_evaluator.topk=(1,)' in printed
    predictions = pickle.loads(out.read_bytes())
    assert len(predictions) == 12
    right = [int(sample['pred_score'].argmax()) == int(sample['gt_label']) for sample in predictions]
    (metrics,) = tmp_path.glob('*/*.json')
    assert json.loads(metrics.read_text())['accuracy/top1'] == pytest.approx(100 * sum(right) / 12, abs=1e-3)
    assert list((tmp_path / 'drawn').glob('*.png'))


def test_other_classes_and_other_layouts_stop(data, trained, tmp_path):
    other = tmp_path / 'other'
    for split in ('train', 'val'):
        shutil.copytree(data / split, other / split)
        (other / split / CLASSES[0]).rename(other / split / 'unicorn')
    checkpoint = str(trained / 'epoch_1.pth')
    with pytest.raises(SystemExit, match=r'not the same: 3 \(disk-plain, .*star-speckle.*unicorn\)'):
        tool('test')([CONFIG, checkpoint, '--data', str(other), '--work-dir', str(tmp_path)])
    with pytest.raises(SystemExit, match='no folder train: put the images into DIR/train/CLASS/'):
        tool('train')([CONFIG, '--data', str(data / 'train'), '--work-dir', str(tmp_path)])
