"""The command lines: a tiny training, its resumption, its evaluation, and errors that say what to do."""

import json
import pickle
import runpy
from pathlib import Path

import pytest
import torch

from tokennorm.cli import train
from tokennorm.datasets import make_shapes_dataset

ROOT = Path(__file__).resolve().parents[1]
CONFIG = str(ROOT / 'configs' / 'demo' / 'retinanet_pvt-mini-dtn-dpn_fpn_shapes.py')


def tool(name):
    return runpy.run_path(str(ROOT / 'tools' / f'{name}.py'))['main']


def options(data, **more):
    """The demo's config on a small dataset, two iterations an epoch."""
    cfg = {
        'train_dataloader.batch_size': 2,
        'train_dataloader.num_workers': 0,
        'train_dataloader.persistent_workers': False,
        'val_dataloader.num_workers': 0,
        'val_dataloader.persistent_workers': False,
        'test_dataloader.num_workers': 0,
        'test_dataloader.persistent_workers': False,
        'train_cfg.max_epochs': 1,
        'train_cfg.val_interval': 1,
        'model.test_cfg.score_thr': 0.0,
        'default_hooks.logger.interval': 1,
        'default_hooks.checkpoint.interval': 1,
        'val_evaluator.ann_file': f'{data}/annotations/val.json',
        'test_evaluator.ann_file': f'{data}/annotations/val.json',
    }
    cfg |= {f'{split}_dataloader.dataset.data_root': str(data) for split in ('train', 'val', 'test')}
    return [f'{key}={value}' for key, value in (cfg | more).items()]


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    return make_shapes_dataset(tmp_path_factory.mktemp('data') / 'shapes', num_train=4, num_val=3, image_size=64)


@pytest.fixture(scope='module')
def trained(data, tmp_path_factory):
    """The work folder of one epoch."""
    work_dir = tmp_path_factory.mktemp('work')
    tool('train')([CONFIG, '--work-dir', str(work_dir), '--cfg-options', *options(data)])
    return work_dir


def scalars(work_dir):
    lines = [
        line for path in sorted(work_dir.glob('*/vis_data/scalars.json')) for line in path.read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]


def test_training_leaves_checkpoint_curves_pictures_and_summary(trained):
    checkpoint = torch.load(trained / 'epoch_1.pth', weights_only=False)
    assert checkpoint['meta']['iter'] == 2
    position = checkpoint['state_dict']['backbone.stages.0.blocks.0.norm1.position']
    assert not torch.equal(position, torch.tensor([[-1.0, 0.0, 0.0]])), 'DTN was not trained'
    losses = [entry['loss'] for entry in scalars(trained) if 'loss' in entry]
    assert len(losses) == 2
    assert all(0 < loss < 100 for loss in losses)
    assert any('coco/bbox_mAP' in entry for entry in scalars(trained))
    summary = (trained / 'summary.md').read_text()
    for name in ('curves.png', 'predictions.png', 'epoch_1.pth'):
        assert f'- {trained / name}' in summary
        assert (trained / name).stat().st_size > 1000
    assert 'coco/bbox_mAP at the end: 0.0' in summary


def test_resume_goes_on_where_training_stopped(data, trained):
    more = options(data, **{'train_cfg.max_epochs': 2})
    tool('train')([CONFIG, '--work-dir', str(trained), '--resume', '--auto-scale-lr', '--cfg-options', *more])
    steps = [entry['step'] for entry in scalars(trained) if 'loss' in entry]
    assert steps == [1, 2, 3, 4]
    assert torch.load(trained / 'epoch_2.pth', weights_only=False)['meta']['iter'] == 4


def test_test_evaluates_draws_and_dumps(data, trained, tmp_path):
    (checkpoint,) = trained.glob('epoch_*.pth')
    out = tmp_path / 'predictions.pkl'
    arguments = [CONFIG, str(checkpoint), '--work-dir', str(tmp_path), '--out', str(out), '--show-dir', 'drawn']
    tool('test')([*arguments, '--cfg-options', *options(data)])
    assert len(pickle.loads(out.read_bytes())) == 3
    assert len(list(tmp_path.glob('*/drawn/*.jpg'))) == 3
    (metrics,) = tmp_path.glob('*/*.json')
    assert 'coco/bbox_mAP' in json.loads(metrics.read_text())


def test_a_checkpoint_of_another_norm_and_stem_is_not_evaluated(data, trained):
    control = CONFIG.replace('-dtn-dpn', '')
    (checkpoint,) = trained.glob('epoch_*.pth')
    with pytest.raises(
        SystemExit, match=r'(?s)does not fit RetinaNet.*unexpected: .*mean_logit.*another shape: .*proj'
    ):
        tool('test')([control, str(checkpoint), '--work-dir', str(trained), '--cfg-options', *options(data)])


def test_mistakes_on_the_command_line_say_what_to_do(data, tmp_path):
    elsewhere = [f'{split}_dataloader.dataset.data_root={tmp_path}/shapes' for split in ('train', 'val')]
    with pytest.raises(SystemExit, match=r'annotations/train.json is not there; make it with'):
        tool('train')([CONFIG, '--work-dir', str(tmp_path), '--cfg-options', *elsewhere])
    more = options(data, **{'model.bbox_head.num_classes': 80})
    with pytest.raises(SystemExit, match=r'model.bbox_head.num_classes=80'):
        tool('train')([CONFIG, '--work-dir', str(tmp_path), '--cfg-options', *more])
    with pytest.raises(SystemExit, match=r'none.pth is not there'):
        tool('test')([CONFIG, str(tmp_path / 'none.pth')])
    with pytest.raises(SystemExit, match=r'config none.py is not there'):
        tool('train')(['none.py'])
    with pytest.raises(SystemExit, match=r'must end in .pkl'):
        tool('test')([CONFIG, 'none.pth', '--out', 'predictions.json'])


def test_a_finished_demo_is_not_trained_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'work_dirs' / 'demo').mkdir(parents=True)
    (tmp_path / 'work_dirs' / 'demo' / 'summary.md').write_text('AP 1')
    tool('demo')([])
    assert 'remove work_dirs/demo to train again.\n\nAP 1' in capsys.readouterr().out


def test_the_demo_leaves_a_dataset_of_other_settings_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_shapes_dataset(tmp_path / 'data' / 'shapes', num_train=1, num_val=1, image_size=64)
    with pytest.raises(SystemExit, match='error: data/shapes holds a dataset of other settings'):
        tool('demo')(['--control'])


def test_an_interruption_says_how_to_go_on():
    class Interrupted:
        work_dir = 'work_dirs/x'

        def train(self):
            raise KeyboardInterrupt

    with pytest.raises(SystemExit, match=r'Checkpoints so far are in work_dirs/x; --resume goes on'):
        train(Interrupted(), '--resume goes on from the latest.')
