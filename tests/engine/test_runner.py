"""Checks before a training run starts or continues."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.visualization import Visualizer
from torch import nn

from tests.helpers import toy_training as toys
from tokennorm.base.messages import UserError
from tokennorm.checkpoints import Checkpoint, CheckpointError
from tokennorm.cli.command import command
from tokennorm.engine import runner as runner_module
from tokennorm.engine.hooks.summary import SummaryHook
from tokennorm.engine.runner import (
    Runner,
    as_built,
    build_runner,
    find_checkpoint_to_resume,
    load_from_checkpoint,
    run,
)
from tokennorm.findings import Refusal

ONE, OTHER = dict(classes=('a', 'b'), palette=[1, 2]), dict(classes=['a', 'b'])


@pytest.mark.parametrize(
    ('dataset', 'meta', 'classes'),
    [
        (SimpleNamespace(metainfo=ONE), ONE, ['a', 'b']),
        (SimpleNamespace(metainfo=[ONE, OTHER]), [ONE, OTHER], ['a', 'b']),  # mmdet's ConcatDataset, where they differ
        (SimpleNamespace(metainfo=ONE), [ONE, dict(classes=('c',))], None),
        (SimpleNamespace(metainfo=ONE), None, None),
        (object(), ONE, ['a', 'b']),  # mmengine takes any dataset of torch's
    ],
)
def test_classes_are_compared_where_both_say_them(tmp_path, dataset, meta, classes):
    model, path = nn.Linear(1, 1), tmp_path / 'epoch_1.pth'
    torch.save(dict(meta=dict(dataset_meta=meta), state_dict=model.state_dict(), optimizer={}), path)
    found = Checkpoint.read(path).dataset_meta.get('classes')
    assert (found and list(found)) == classes
    runner = SimpleNamespace(model=model, hooks=[], train_dataloader=SimpleNamespace(dataset=dataset))
    cfg = dict(load_from=str(path), resume=True)
    load_from_checkpoint(runner, cfg, training=True)
    dataset = SimpleNamespace(metainfo=[dict(classes=('b', 'a')), dict(classes=('b', 'a'), palette=[1, 2])])
    runner.train_dataloader.dataset = dataset
    if classes is not None:
        with pytest.raises(Refusal, match='checkpoint-classes'):
            load_from_checkpoint(runner, cfg, training=True)


@pytest.mark.parametrize('resume', [True, 'auto'])
def test_resume_without_a_checkpoint_starts_from_the_beginning(tmp_path, resume):
    cfg = Config(dict(work_dir=str(tmp_path), resume=resume))
    find_checkpoint_to_resume(cfg)
    assert (cfg.resume, cfg.load_from) == (False, None)


def test_resume_leaves_outload_from_checkpoint(tmp_path):
    (tmp_path / 'epoch_1.pth').touch()
    for resume, expected in (('auto', str(tmp_path / 'epoch_1.pth')), ('a.pth', 'a.pth'), (True, 'coco.pth')):
        cfg = Config(dict(work_dir=str(tmp_path), resume=resume, load_from='coco.pth'))
        find_checkpoint_to_resume(cfg)
        assert (cfg.resume, cfg.load_from) == (True, expected)


def test_what_is_built_has_nothing_that_upstream_libraries_refuse(tmp_path):
    loader = dict(num_workers=0, prefetch_factor=4, persistent_workers=True)
    hooks = dict(logger=None, cpu_speed=None, non_finite=dict(type='tokennorm.NonFiniteHook'))
    model = dict(num_queries=10, bbox_head=dict(num_classes=2), test_cfg=dict(max_per_img=100))
    cfg = Config(dict(model=model, train_dataloader=loader, default_hooks=hooks, work_dir=str(tmp_path)))
    cfg.visualizer = dict(type='Visualizer', name='visualizer')
    before = cfg.to_dict()
    built = as_built(cfg, training=False)
    assert built.train_dataloader == dict(num_workers=0, persistent_workers=False)
    assert built.model.test_cfg.max_per_img == 10
    assert list(built.default_hooks) == ['logger', 'non_finite']  # mmengine knows its own ones
    assert built.visualizer == dict(type='Visualizer')  # one of that name may be an earlier run's in this process
    assert cfg.to_dict() == before


def test_rules_know_the_checkpoint_to_resume(tmp_path, monkeypatch):
    """Frozen stages that it fills do not stay random. The written config does not resume again."""
    cfg = toys.config(tmp_path, train_cfg=toys.EPOCHS)
    run(build_runner(cfg, ('train', 'val')), '')
    cfg = toys.config(tmp_path, train_cfg=toys.EPOCHS)
    cfg.resume, seen = True, {}
    monkeypatch.setattr(
        runner_module, 'verify', lambda stage, built: seen.setdefault(stage, built.cfg.get('load_from'))
    )
    runner = build_runner(cfg, ('train', 'val'))
    assert Path(seen['built']).name.startswith('epoch_')
    assert (runner.cfg.resume, runner.cfg.get('load_from')) == (False, None)


def test_config_of_a_run_that_cannot_be_resumed_stays(tmp_path):
    """A run leaves no path of its own directory, which may be moved."""
    cfg = toys.config(tmp_path, train_cfg=toys.EPOCHS)
    cfg.dump(tmp_path / 'toy.py')
    config = Config.fromfile(tmp_path / 'toy.py')
    config.experiment_name = 'movable'
    run(build_runner(config, ('train', 'val')), '')
    written = Config.fromfile(tmp_path / 'toy.py')
    assert written.work_dir == tmp_path.name
    assert (tmp_path / 'last_checkpoint').read_text() == os.path.relpath(tmp_path / 'epoch_4.pth')
    content = Checkpoint.read(tmp_path / 'epoch_4.pth').content
    assert content['message_hub']['runtime_info']['last_ckpt'] == 'epoch_4.pth'
    assert str(tmp_path) not in content['meta']['cfg']
    content['state_dict']['other'] = content['state_dict'].pop('net.0.bias')
    torch.save(content, tmp_path / 'epoch_4.pth')
    written.work_dir, written.resume, written.experiment_name = str(tmp_path), True, 'again'
    written.train_cfg.max_epochs = 9
    with pytest.raises(CheckpointError, match=r'The run wrote its own: tokennorm train .*/toy.py --resume'):
        build_runner(written, ('train', 'val'))
    assert Config.fromfile(tmp_path / 'toy.py').train_cfg.max_epochs == 4


def test_a_config_may_have_no_scope(tmp_path):
    """As mmengine has it for configs in pure Python, whose types are classes."""
    cfg = toys.config(tmp_path, train_cfg=toys.EPOCHS)
    cfg.default_scope = None
    cfg.model.type, cfg.visualizer = toys.ToyModel, dict(type=Visualizer, name='visualizer')
    assert isinstance(build_runner(cfg, ('train', 'val')).model, toys.ToyModel)


@pytest.mark.parametrize('name', [None, 'mine'])
def test_runs_that_begin_in_one_second_have_names_of_their_own(tmp_path, name, monkeypatch):
    """mmengine names loggers by config and second, and returns that of another run for the same name."""
    monkeypatch.setattr('time.time', lambda: 1.7e9)
    runners = []
    for folder in 'ab':
        cfg = toys.config(tmp_path / folder, train_cfg=toys.EPOCHS)
        cfg.experiment_name = name  # None: mmengine makes it of the file's name and the second
        cfg.dump(tmp_path / 'toy.py')
        cfg = Config.fromfile(tmp_path / 'toy.py')
        runners.append(build_runner(cfg, ('train', 'val')))
    for part in ('experiment_name', 'logger', 'message_hub', 'visualizer', 'log_dir'):
        assert getattr(runners[0], part) != getattr(runners[1], part)
    assert runners[1].timestamp == f'{runners[0].timestamp}_2'


def test_a_hook_that_refuses_its_arguments_ends_in_one_line(tmp_path):
    cfg = toys.config(tmp_path, train_cfg=dict(toys.EPOCHS, val_begin=3))
    cfg.custom_hooks = [dict(type='EMAHook', begin_epoch=9)]
    runner = build_runner(cfg, ('train', 'val'))
    rows = dict(SummaryHook()._rows(runner))
    assert rows['validation'].endswith('after every 2 epochs, from epoch 3')
    with pytest.raises(UserError, match=r'the config cannot be used: self.begin_epoch should be smaller'):
        run(runner, '')


def test_the_log_file_takes_every_character(tmp_path):
    """In UTF-8, whatever the encoding of the machine; names of files may be any bytes."""
    cfg = toys.config(tmp_path, toys.EPOCHS)
    cfg.log_level = 'INFO'
    runner = Runner.from_cfg(cfg)
    (handler,) = (one for one in runner.logger.handlers if isinstance(one, logging.FileHandler))
    assert (handler.stream.encoding, handler.encoding) == ('utf-8', 'utf-8')
    runner.logger.info('größe 红色 \udce9.jpg')
    text = Path(handler.baseFilename).read_text(encoding='utf-8')
    assert 'größe 红色 \\udce9.jpg' in text


@pytest.mark.parametrize(
    ('free', 'line'),
    [
        (0, r'out of shared memory: /dev/shm is full: give the container more shared memory'),
        (2**26, r'No space left on device. Checkpoints so far are in work; again'),
    ],
)
def test_a_full_disk_and_full_shared_memory_are_told_apart(free, line, monkeypatch):
    def train():
        raise OSError(28, 'No space left on device')  # without a file in both cases

    monkeypatch.setattr(runner_module.shutil, 'disk_usage', lambda _: SimpleNamespace(free=free))
    full = SimpleNamespace(iter=0, train=train, work_dir='work')
    with pytest.raises(SystemExit, match=f'^error: .*{line}'):
        command(lambda argv: run(full, 'again'))([])


@pytest.mark.parametrize(
    ('noted', 'is_taken'),
    [
        (dict(palette=[[1, 2, 3]], classes=['a', 'b']), True),
        (dict(palette=[(1, 2, 3)], classes=('b', 'a')), False),
        (None, False),
    ],
)
def test_metainfo_of_equal_data_is_that_of_the_data(noted, is_taken, monkeypatch):
    """mmengine compares pickles, which differ for lists and tuples."""
    for name in ('restart_epoch', 'use_settings_of_run'):
        monkeypatch.setattr(runner_module, name, lambda *_: None)
    meta, checkpoint = dict(classes=('a', 'b'), palette=[(1, 2, 3)]), dict(meta=dict(dataset_meta=noted), state_dict={})
    runner = SimpleNamespace(
        _resume=True,
        model=toys.ToyModel(),
        load_checkpoint=None,
        call_hook=lambda *_, **__: None,
        logger=SimpleNamespace(info=print),
        train_dataloader=SimpleNamespace(dataset=SimpleNamespace(metainfo=meta)),
    )
    runner_module._load_checkpoint(runner, checkpoint, {}, 'x.pth')
    assert (checkpoint['meta']['dataset_meta'] is meta) == is_taken
