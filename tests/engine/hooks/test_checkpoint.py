"""Checkpoints are whole or not there, and the one before is there until then."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.runner import Runner
from torch import nn

from tests.helpers.toy_training import EPOCHS, ITERATIONS, ToyMetric, collect_garbage, config, train  # noqa: F401
from tokennorm.base.files import write_atomically
from tokennorm.base.messages import UserError
from tokennorm.checkpoints.locating import newest_checkpoint
from tokennorm.engine.hooks.checkpoint import AtomicBackend, CheckpointHook
from tokennorm.engine.runner import run as train_with_messages

SETTINGS = dict(train_cfg=EPOCHS, max_keep_ckpts=1)


def names(folder):
    """Files but for mmengine's copy of the config."""
    return sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix != '.py')


def test_full_disk_ends_training_with_the_last_checkpoint(tmp_path, monkeypatch):
    def full(path, content):
        if Path(path).name == 'epoch_2.pth':
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_atomically(path, content)

    monkeypatch.setattr('tokennorm.engine.hooks.checkpoint.write_atomically', full)
    original = Runner.train

    def with_messages(runner):
        inner = SimpleNamespace(work_dir=str(tmp_path), cfg=runner.cfg, iter=0, train=lambda: original(runner))
        train_with_messages(inner, '--resume continues')

    monkeypatch.setattr(Runner, 'train', with_messages)
    with pytest.raises(UserError, match=r'No space left on device.* Checkpoints so far are in .*; --resume continues'):
        train(tmp_path, **SETTINGS)
    assert newest_checkpoint(tmp_path) == tmp_path / 'epoch_1.pth'


@pytest.mark.parametrize('moment', ['written', 'pointed to', 'removed'])
def test_a_kill_while_saving_leaves_a_whole_checkpoint(tmp_path, monkeypatch, moment):
    """With one checkpoint kept: at each moment of the second save there is one."""

    class Killed(BaseException):
        pass

    replace = Path.replace

    def killed_before_renaming(self, target):
        if target.name == 'epoch_2.pth':
            raise Killed
        return replace(self, target)

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as patch:
        if moment == 'written':
            patch.setattr(Path, 'replace', killed_before_renaming)
        elif moment == 'pointed to':
            patch.setattr('mmengine.hooks.checkpoint_hook.open', _kills_in_the_second_call(Killed), raising=False)
        else:
            patch.setattr(Path, 'unlink', killed)
        with pytest.raises(Killed):
            train(tmp_path, **SETTINGS)
    expected = 'epoch_2.pth' if moment == 'pointed to' else 'epoch_1.pth'
    assert newest_checkpoint(tmp_path) == tmp_path / expected
    train(tmp_path, resume=True, **SETTINGS)
    assert names(tmp_path) == ['epoch_4.pth', 'last_checkpoint']


def _kills_in_the_second_call(error):
    calls = []

    def opened(path, mode):
        calls.append(path)
        if len(calls) == 2:
            raise error
        return open(path, mode)

    return opened


def test_best_checkpoint_is_replaced_by_a_better_one(tmp_path, monkeypatch):
    """mmengine removes the best one before it writes the better one."""
    there = []

    def spied(path, content):
        there.append([name for name in names(tmp_path) if name.startswith('best_')])
        write_atomically(path, content)

    monkeypatch.setattr('tokennorm.engine.hooks.checkpoint.write_atomically', spied)
    train(tmp_path, save_best='acc', **SETTINGS)
    assert there[-2:] == [['best_acc_epoch_2.pth'], ['best_acc_epoch_4.pth']]
    assert [name for name in names(tmp_path) if name.startswith('best_')] == ['best_acc_epoch_4.pth']


def test_a_checkpoint_that_is_written_again_is_not_removed(tmp_path):
    """As the best one is by a validation that is repeated."""
    backend = AtomicBackend([])
    for name in ('best.pth', 'old.pth'):
        (tmp_path / name).write_bytes(b'1')
        backend.remove(tmp_path / name)
    backend.put(b'2', tmp_path / 'best.pth')
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {'best.pth': b'2'}


@pytest.mark.parametrize(('score', 'kept'), [(0.0, 4), (-1.0, 4), (0.25, 2)])
def test_of_equal_scores_the_last_is_best_only_at_zero(tmp_path, monkeypatch, score, kept):
    """An AP that stays 0 says nothing of the checkpoints, and the last one has learned most."""
    monkeypatch.setattr(ToyMetric, 'evaluate', lambda self, size: dict(acc=score))
    train(tmp_path, save_best='acc', **SETTINGS)
    assert [name for name in names(tmp_path) if name.startswith('best_')] == [f'best_acc_epoch_{kept}.pth']


def test_best_checkpoint_of_a_renamed_directory_is_replaced(tmp_path):
    settings = SETTINGS | dict(save_best='acc')
    train(tmp_path / 'before', iteration=13, **settings)
    latest = tmp_path / 'before' / 'epoch_3.pth'
    content = torch.load(latest, weights_only=False)
    content['message_hub']['runtime_info']['best_score'] = -1.0  # that of the metric begins again at 0
    torch.save(content, latest)
    (tmp_path / 'before').rename(tmp_path / 'after')
    train(tmp_path / 'after', resume=True, **settings)
    assert names(tmp_path / 'after') == ['best_acc_epoch_4.pth', 'epoch_4.pth', 'last_checkpoint']


def test_files_outside_the_work_dir_are_never_removed(tmp_path, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp('elsewhere')
    for name in ('best.pth', 'epoch_1.pth'):
        (elsewhere / name).touch()
    (tmp_path / 'notes.txt').touch()
    settings = SETTINGS | dict(save_best='acc')
    train(tmp_path, iteration=13, **settings)
    content = torch.load(tmp_path / 'epoch_3.pth', weights_only=False)
    content['message_hub']['runtime_info'] |= dict(best_ckpt=str(elsewhere / 'best.pth'), best_score=-1.0)
    torch.save(content, tmp_path / 'epoch_3.pth')
    train(tmp_path, resume=True, **settings)
    assert 'best_acc_epoch_4.pth' in names(tmp_path)
    assert 'notes.txt' in names(tmp_path)
    assert names(elsewhere) == ['best.pth', 'epoch_1.pth']


def test_ranks_validate_with_the_statistics_of_the_checkpoint(monkeypatch):
    """Those of rank 0: mmengine's wrapper does not synchronize them."""
    sent = []
    monkeypatch.setattr('tokennorm.engine.hooks.checkpoint.broadcast', sent.append)
    model = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    CheckpointHook().before_val_epoch(SimpleNamespace(model=model))
    assert [id(buffer) for buffer in sent] == [id(model[1].running_mean), id(model[1].running_var)]


@pytest.mark.parametrize('loop', [EPOCHS, ITERATIONS])
@pytest.mark.parametrize('average', [False, True])
def test_validation_without_training_gives_metrics_and_writes_nothing(tmp_path, loop, average):
    cfg = config(tmp_path, loop, by_epoch='max_epochs' in loop, save_best='acc', average=average)
    cfg.custom_hooks.append(dict(type='tokennorm.EarlyStoppingHook', monitor='acc', rule='greater', patience=1))
    runner = Runner.from_cfg(cfg)
    before = {name: value.clone() for name, value in runner.model.state_dict().items()}
    assert [runner.val()['acc'] for _ in range(3)] == [0.0, 1.0, 2.0]
    assert not list(tmp_path.rglob('*.pth'))
    assert names(tmp_path) == []
    for name, value in runner.model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_training_selects_its_best_checkpoint_after_a_validation(tmp_path):
    cfg = config(tmp_path, EPOCHS, save_best='acc')
    runner = Runner.from_cfg(cfg)
    runner.val()
    runner.train()
    assert [path.name for path in tmp_path.glob('best_*')] == ['best_acc_epoch_4.pth']
