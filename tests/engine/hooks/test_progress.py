"""What people see while a model trains: a bar in a terminal and one line per epoch; the console is left as it was."""

import io
import logging
import math
import os
import pty
import re
import subprocess
import sys
from types import SimpleNamespace

import mmengine
import pytest
from mmengine.logging import HistoryBuffer
from mmengine.runner import EpochBasedTrainLoop
from rich.console import Console

from tokennorm.engine.hooks.progress import Display, ProgressHook, duration, named_score, validations_left
from tokennorm.plan.hooks import progress

CODES = re.compile(r'\x1b\[[0-9;?]*[A-Za-z]')


def shown(text):
    """The lines of a terminal after everything was written, without colors; a carriage return begins a line anew."""
    lines = [CODES.sub('', line.rstrip('\r').rpartition('\r')[2]) for line in text.split('\n')]
    return [line.rstrip() for line in lines]


@pytest.fixture
def logger():
    logger = logging.Logger('test')
    logger.addHandler(logging.StreamHandler(sys.stdout))
    logger.handlers[0].setFormatter(logging.Formatter('%(levelname)s %(message)s'))
    return logger


def test_lines_appear_above_the_bar_and_upstream_routine_does_not(logger, tmp_path):
    screen = io.StringIO()
    logger.addHandler(logging.FileHandler(tmp_path / 'log'))
    console, stream = logger.handlers[0], logger.handlers[0].stream
    display = Display(logger, Console(file=screen, force_terminal=True, width=70))
    display.show('Epoch 2/3', 5, 20, 'loss 0.25  AP 40.1  12 s left')
    logger.info('epoch 1/3')
    logger.warning('careful')
    logger.handle(logging.LogRecord('m', logging.INFO, f'{mmengine.__path__[0]}/hooks/x.py', 1, 'routine', (), None))
    logger.handle(logging.LogRecord('m', logging.ERROR, f'{mmengine.__path__[0]}/hooks/x.py', 1, 'fault', (), None))
    before = shown(screen.getvalue())
    assert [line for line in before if line in ('epoch 1/3', 'WARNING careful', 'ERROR fault')] == before[:3]
    assert re.fullmatch(r'Epoch 2/3 .* 5/20 loss 0.25  AP 40.1  12 s left', before[3])
    assert screen.getvalue().rindex('\x1b[?25h') > screen.getvalue().rindex('\x1b[?25l')  # a kill leaves a cursor
    display.close()
    display.close()
    assert (console.stream, console.filters, console.formatter._fmt) == (stream, [], '%(levelname)s %(message)s')
    assert not isinstance(sys.stdout, type(display.progress.console.file)) or sys.stdout is stream
    logger.handlers[1].flush()
    assert (tmp_path / 'log').read_text().split('\n')[:4] == ['epoch 1/3', 'careful', 'routine', 'fault']


def runner_of(epochs=4, length=3, loss=(2.0, 1.0, 0.6, 0.4, 0.2, 0.3)):
    loop = EpochBasedTrainLoop.__new__(EpochBasedTrainLoop)
    vars(loop).update(_max_epochs=epochs, _max_iters=epochs * length, _epoch=0, _iter=0, val_begin=1, val_interval=2)
    scalars = {'train/loss': HistoryBuffer(), 'train/time': HistoryBuffer()}
    logger = logging.Logger('test')
    logger.addHandler(logging.StreamHandler(io.StringIO()))
    hub = SimpleNamespace(log_scalars=scalars, runtime_info={})
    runner = SimpleNamespace(train_loop=loop, message_hub=hub, logger=logger, val_loop=object(), losses=iter(loss))
    runner.train_dataloader, runner.val_dataloader = range(length), range(2)
    return runner


def train_epoch(runner, hook, metrics=None):
    hook.before_train_epoch(runner)
    for i in runner.train_dataloader:
        runner.message_hub.log_scalars['train/loss'].update(next(runner.losses))
        runner.message_hub.log_scalars['train/time'].update(2.0)
        hook.after_train_iter(runner, i)
        runner.train_loop._iter += 1
    hook.after_train_epoch(runner)
    runner.train_loop._epoch += 1
    if metrics is not None:
        hook.before_val(runner)
        hook.after_val_epoch(runner, metrics)


def test_one_line_per_epoch(monkeypatch):
    monkeypatch.setattr(progress.time, 'time', lambda: 100.0)
    runner, hook = runner_of(), ProgressHook('coco/bbox_mAP')
    hook.before_train(runner)
    assert hook.display is None  # not in a terminal
    train_epoch(runner, hook, {'coco/bbox_mAP': 0.404, 'coco/bbox_mAP_50': 0.7})
    train_epoch(runner, hook)
    hook.after_train(runner)
    hook.after_train(runner)
    lines = runner.logger.handlers[0].stream.getvalue().splitlines()
    assert lines == ['epoch 1/4  loss 1.2  AP 40.4  AP50 70.0  the best so far  0 s', 'epoch 2/4  loss 0.3  0 s']


def test_the_bar_has_loss_score_and_time_left(monkeypatch):
    now = iter(range(100, 1000, 5))
    monkeypatch.setattr(progress.time, 'time', lambda: next(now))
    runner, hook, calls = runner_of(), ProgressHook('coco/segm_mAP'), []
    runner.message_hub.runtime_info['best_score'] = 0.5  # a resumed run
    hook.before_train(runner)
    hook.display = SimpleNamespace(is_due=lambda: True, show=lambda *given: calls.append(given), close=lambda: None)
    train_epoch(runner, hook, {'coco/segm_mAP': 0.404})
    assert calls[0] == ('Epoch 1/4', 1, 3, 'loss 2  22 s left')  # 11 iterations of 2 seconds
    assert calls[2] == ('Epoch 1/4', 3, 3, 'loss 1.2  18 s left')
    hook.after_val_iter(runner, 0)
    assert calls[3] == ('Validation', 1, 2, 'mask AP 40.4, best 50.0')
    runner.train_loop._iter += 1
    hook.before_train_epoch(runner)
    hook._iterations = 1
    hook._show(runner, 0)
    assert calls[4] == ('Epoch 2/4', 1, 3, 'mask AP 40.4, best 50.0  26 s left')  # and two validations of 5 seconds


def test_validations_that_are_left():
    assert [validations_left(done, 12, 1, 5) for done in (0, 4, 5, 10, 11, 12)] == [3, 3, 2, 1, 1, 0]
    assert [validations_left(done, 12, 8, 4) for done in (0, 4, 8, 12)] == [2, 2, 1, 0]


def test_scores_and_times_for_people():
    names = ('coco/bbox_mAP', 'coco/segm_mAP', 'accuracy/top1', 'mine/bbox_mAP_50', 'coco/AR@100')
    assert [named_score(name, value) for name, value in zip(names, (0.457, 0.4, 78.25, 0.7, 0.602), strict=True)] == [
        'AP 45.7',
        'mask AP 40.0',
        'top-1 78.2',
        'AP50 70.0',
        'AR@100 60.2',
    ]
    assert [duration(seconds) for seconds in (-1, 59.4, 65, 3600 * 3 + 61)] == ['0 s', '59 s', '1:05 min', '3:01 h']
    assert ProgressHook('coco/bbox_mAP')._results({'coco/bbox_mAP': math.nan}) == []


PROGRAM = """
import logging, sys
from tokennorm.engine.hooks.progress import Display, has_terminal
logger = logging.Logger('test')
logger.addHandler(logging.StreamHandler(sys.stdout))
print(has_terminal(), flush=True)
if has_terminal():
    display = Display(logger)
    display.show('Epoch 1/2', 1, 2, 'loss 0.5')
    raise KeyboardInterrupt('stopped')
"""


def test_a_bar_in_a_terminal(monkeypatch, logger):
    leader, follower = pty.openpty()
    monkeypatch.setenv('TERM', 'xterm')
    monkeypatch.setenv('COLUMNS', '70')
    with os.fdopen(follower, 'w') as terminal:
        monkeypatch.setattr(sys, 'stdout', terminal)
        assert progress.has_terminal()
        monkeypatch.setenv('TERM', 'dumb')
        assert not progress.has_terminal()
        monkeypatch.setenv('TERM', 'xterm')
        logger.handlers[0].setStream(terminal)
        display = Display(logger)
        display.show('Epoch 1/2', 1, 2, 'loss 0.5')
        print('printed')
        logger.info('logged')
        display.close()
        assert sys.stdout is terminal
        print('after')
    text = b''
    while chunk := read(leader):
        text += chunk
    lines = shown(text.decode().replace('\r\n', '\n'))
    assert [line for line in lines if line and 'Epoch' not in line] == ['printed', 'logged', 'after']
    assert 'Epoch 1/2' in text.decode()


@pytest.mark.slow
def test_an_interrupted_program_leaves_the_terminal_as_it_was():
    leader, follower = pty.openpty()
    env = os.environ | dict(TERM='xterm', COLUMNS='70')
    program = subprocess.Popen([sys.executable, '-c', PROGRAM], stdout=follower, stderr=follower, env=env)
    os.close(follower)
    text = b''
    while chunk := read(leader):
        text += chunk
    program.wait(60)
    text = text.decode()
    assert text.startswith('True')
    assert 'Epoch 1/2' in text
    assert 'stopped' in text
    assert text.rindex('\x1b[?25h') > text.rindex('\x1b[?25l')


def read(leader):
    try:
        return os.read(leader, 65536)
    except OSError:  # the program has ended
        return b''


def test_a_pipe_gets_no_bar(monkeypatch, tmp_path):
    with (tmp_path / 'out').open('w') as file:
        monkeypatch.setattr(sys, 'stdout', file)
        monkeypatch.setenv('FORCE_COLOR', '1')  # of a CI service
        assert not progress.has_terminal()
