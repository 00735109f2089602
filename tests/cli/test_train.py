"""`tokennorm train`: the checkpoint and the report, resumed runs, and data or classes that do not fit."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from tests.helpers.commands import tool
from tests.helpers.scalars import logged
from tests.helpers.trained import CONFIG, few, options
from tokennorm.base.cores import THREADS
from tokennorm.cli.train import main


def test_more_ranks_than_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    with pytest.raises(SystemExit, match='--gpus 3: this machine has 2 GPUs'):
        main(['retinanet_pvt-mini_fpn', '--gpus', '3'])
    with pytest.raises(SystemExit, match='--gpus chooses the devices: leave out --device'):
        main(['retinanet_pvt-mini_fpn', '--gpus', '2', '--device', 'cuda'])


@pytest.mark.parametrize('container', [None, 4])
@pytest.mark.parametrize(
    ('given', 'expected'),
    [
        ({}, None),
        (dict(OMP_NUM_THREADS='3'), ['3', '3']),
        (dict(MKL_NUM_THREADS='3'), ['3', '3']),
        (dict(OMP_NUM_THREADS='3', MKL_NUM_THREADS='5'), ['3', '5']),
    ],
)
def test_ranks_share_the_threads_unless_the_user_sets_them(given, expected, container, monkeypatch):
    found, threads = [], [8]
    monkeypatch.setattr('torch.distributed.run.main', lambda _: found.append([os.environ[name] for name in THREADS]))
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    monkeypatch.setattr('tokennorm.base.cores.container_cores', lambda: container)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: threads[-1])
    monkeypatch.setattr(torch, 'set_num_threads', threads.append)
    for name in THREADS:
        monkeypatch.setenv(name, '')  # restored after the test
        del os.environ[name]
    os.environ.update(given)
    main(['retinanet_pvt-mini_fpn', '--gpus', '2'])
    assert found == [expected or [str((container or 8) // 2)] * 2]


@pytest.mark.slow
def test_two_ranks_train_without_a_config(boxes, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')  # the ranks find none
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    words = ['--gpus', '2', '--data', boxes, '--model', 'mini', '--epochs', '1', '--work-dir', str(tmp_path)]
    main([*words, '--cfg-options', *few()])
    assert 'batch          4 images per step' in capfd.readouterr().out  # 2 per rank
    scalars = next(tmp_path.glob('*/vis_data/scalars.json')).read_text().splitlines()
    assert 'coco/bbox_mAP' in json.loads(scalars[-1])
    assert (tmp_path / 'epoch_1.pth').is_file()
    with pytest.raises(SystemExit) as ended:
        main([*words, '--cfg-options', *few()])
    assert ended.value.code == 1
    printed = capfd.readouterr().err
    assert 'has checkpoints of an earlier training run' in printed
    assert 'Traceback' not in printed


def test_training_writes_checkpoint_and_report(demo_trained):
    checkpoint = torch.load(demo_trained / 'epoch_1.pth', weights_only=False)
    assert checkpoint['meta']['iter'] == 2
    position = checkpoint['state_dict']['backbone.stages.0.blocks.0.norm1.position']
    assert not torch.equal(position, torch.tensor([[-1.0, 0.0, 0.0]])), 'DTN was not trained'
    losses = [entry['loss'] for entry in logged(demo_trained) if 'loss' in entry]
    assert len(losses) == 2
    assert all(0 < loss < 100 for loss in losses)
    assert any('coco/bbox_mAP' in entry for entry in logged(demo_trained))
    assert all((demo_trained / name).stat().st_size > 1000 for name in ('report.html', 'report.json'))


def test_resume_continues_where_training_stopped(demo_data, demo_trained, tmp_path, without_report, capsys):
    work_dir = shutil.copytree(demo_trained, tmp_path / 'work')
    (work_dir / 'last_checkpoint').write_text(str(work_dir / 'epoch_1.pth'))
    more = options(demo_data, **{'train_cfg.max_epochs': 2})
    words = [CONFIG, '--work-dir', str(work_dir), '--resume', '--lr', '0.004']
    tool('train')([*words, '--cfg-options', *more])
    steps = [entry['step'] for entry in logged(work_dir) if 'loss' in entry]
    assert steps == [1, 2, 3, 4]
    rates = [entry['lr'] for entry in logged(work_dir) if 'lr' in entry]
    assert rates[2] == pytest.approx(2 * rates[1], rel=0.01), 'the schedule of --lr 0.004, of which half is over'
    assert f'learning rate  {rates[2]:.4g} at iteration 2 of the new schedule' in capsys.readouterr().out
    assert torch.load(work_dir / 'epoch_2.pth', weights_only=False)['meta']['iter'] == 4


def test_config_of_a_resumed_run_does_not_resume(demo_data, demo_trained, tmp_path, without_report):
    work_dir = shutil.copytree(demo_trained, tmp_path / 'work')
    first = {'model.backbone.init_cfg.type': 'Pretrained', 'model.backbone.init_cfg.checkpoint': 'none.pth'}
    first |= {'load_from': str(demo_trained / 'epoch_1.pth')}  # the initial weights of the first run
    words = [CONFIG, '--work-dir', str(work_dir), '--resume', '--lr', '0.003']  # which writes the config once more
    tool('train')([*words, '--cfg-options', *options(demo_data, **first)])  # complete already
    cfg = Config.fromfile(work_dir / Path(CONFIG).name)
    assert (cfg.resume, cfg.load_from) == (False, str(demo_trained / 'epoch_1.pth'))
    assert cfg.model.backbone.init_cfg.checkpoint == 'none.pth'
    assert cfg.optim_wrapper.optimizer.lr == 0.003


def test_data_with_errors_is_not_trained_on(demo_data, tmp_path, capsys):
    own = shutil.copytree(demo_data, tmp_path / 'own')
    (own / 'images' / 'val' / '000000.jpg').unlink(missing_ok=True)
    next((own / 'images' / 'val').iterdir()).write_bytes(b'')
    with pytest.raises(SystemExit, match='own has errors, listed above'):
        tool('train')([CONFIG, '--data', str(own), '--work-dir', str(tmp_path)])
    assert 'ERROR: val: image files' in capsys.readouterr().out


def test_load_from_detector_needs_no_backbone_weights(demo_data, demo_trained, tmp_path, without_report):
    (checkpoint,) = demo_trained.glob('epoch_*.pth')
    start = {'model.backbone.init_cfg.type': 'Pretrained', 'model.backbone.init_cfg.checkpoint': 'none.pth'}
    few = options(demo_data, load_from=str(checkpoint), **start, **{'train_cfg.val_interval': 9})
    tool('train')([CONFIG, '--work-dir', str(tmp_path), '--cfg-options', *few])
    assert (tmp_path / 'epoch_1.pth').is_file()


def test_classes_that_do_not_fit_are_named(demo_data, tmp_path):
    more = options(demo_data, **{'model.bbox_head.num_classes': 80})
    with pytest.raises(SystemExit, match=r'model.bbox_head.num_classes=80'):
        tool('train')([CONFIG, '--work-dir', str(tmp_path), '--cfg-options', *more])
