"""What people see while a model trains: a bar in a terminal and one line per epoch; the console is left as it was."""

import fcntl
import io
import logging
import os
import pty
import re
import struct
import sys
import termios
from types import SimpleNamespace

import mmengine
from mmengine.logging import HistoryBuffer
from mmengine.runner import EpochBasedTrainLoop

from tokennorm.engine.hooks import progress
from tokennorm.engine.hooks.progress import ProgressHook, named_score

CODES = re.compile(r'\x1b\[[0-9;?]*[A-Za-z]')


class Terminal:
    """The standard output, which is read after it was closed."""

    def __init__(self, monkeypatch):
        self.leader, follower = pty.openpty()
        self.file = os.fdopen(follower, 'w')
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 90, 0, 0))
        monkeypatch.setattr(sys, 'stdout', self.file)

    def text(self):
        self.file.close()
        return read(self.leader)


def read(leader):
    text = b''
    while True:
        try:
            text += os.read(leader, 65536)
        except OSError:  # the other end is closed
            return CODES.sub('', text.decode())


def runner_of(epochs=4, length=3, loss=(2.0, 1.0, 0.6, 0.4, 0.2, 0.3)):
    loop = EpochBasedTrainLoop.__new__(EpochBasedTrainLoop)
    vars(loop).update(_max_epochs=epochs, _max_iters=epochs * length, _epoch=0, _iter=0, val_begin=1, val_interval=2)
    logger = logging.Logger('test')
    logger.addHandler(logging.StreamHandler(sys.stdout))
    logger.handlers[0].setFormatter(logging.Formatter('%(levelname)s %(message)s'))
    hub = SimpleNamespace(log_scalars={'train/loss': HistoryBuffer()}, runtime_info={})
    runner = SimpleNamespace(train_loop=loop, message_hub=hub, logger=logger, losses=iter(loss), epoch=0, iter=0)
    runner.train_dataloader, runner.max_epochs, runner.max_iters = range(length), epochs, epochs * length
    return runner


def train_epoch(runner, hook, metrics=None, images=1):
    hook.before_train_epoch(runner)
    for i in runner.train_dataloader:
        runner.message_hub.log_scalars['train/loss'].update(next(runner.losses))
        hook.after_train_iter(runner, i, dict(inputs=[None] * images))
        runner.iter += 1
    runner.epoch += 1
    if metrics is not None:
        hook.after_val_epoch(runner, metrics)


def test_one_line_per_epoch(monkeypatch):
    clock = iter([0.0] * 2 + [100.0, 101.0, 103.0, 104.0, 164.0, 164.0, 165.0, 165.5, 165.8, 166.0])
    monkeypatch.setattr(progress, 'time', SimpleNamespace(time=lambda: next(clock, 166.0)))
    monkeypatch.setattr(progress, 'get_world_size', lambda: 2)
    monkeypatch.setattr(sys, 'stdout', io.StringIO())
    runner, hook = runner_of(), ProgressHook('coco/bbox_mAP')
    hook.before_train(runner)
    assert hook.display is None  # not in a terminal
    hook.after_val_epoch(runner, {'coco/bbox_mAP': 0.1})  # a validation that is repeated after resuming
    next(clock)
    train_epoch(runner, hook, {'coco/bbox_mAP': 0.404, 'coco/bbox_mAP_50': 0.7}, images=8)
    train_epoch(runner, hook)
    hook.after_train(runner)
    hook.after_train(runner)
    assert sys.stdout.getvalue().splitlines() == [
        'INFO epoch 1/4  loss 1.2  AP 40.4  AP50 70.0  the best so far  12 images/s  01:04',
        'INFO epoch 2/4  loss 0.3  6 images/s  00:01',
    ]


def test_without_a_terminal_the_loss_is_logged_every_minute(monkeypatch):
    """Not in epochs of less than a minute, which have their own line; routine lines are in the log file only."""
    now = [0.0]
    monkeypatch.setattr(progress, 'time', SimpleNamespace(time=lambda: now[0]))
    monkeypatch.setattr(sys, 'stdout', io.StringIO())
    runner, hook = runner_of(epochs=2, length=100, loss=[1.0] * 100 + [0.5] * 100), ProgressHook()
    hook.before_train(runner)
    runner.logger.handle(logging.LogRecord('m', logging.INFO, f'{mmengine.__path__[0]}/x.py', 1, 'routine', (), None))
    update = hook.after_train_iter
    seconds = iter([1.5] * 100 + [0.5] * 100)
    hook.after_train_iter = lambda *args: (now.__setitem__(0, now[0] + next(seconds)), update(*args))
    train_epoch(runner, hook)
    train_epoch(runner, hook)
    hook.after_train(runner)
    assert sys.stdout.getvalue().splitlines() == [
        'INFO epoch 1/2  iteration 40/200  loss 1  04:00 left',
        'INFO epoch 1/2  iteration 80/200  loss 1  03:00 left',
        'INFO epoch 1/2  loss 1  0.667 images/s  02:30',
        'INFO epoch 2/2  loss 0.5  2 images/s  00:50',
    ]


def test_the_bar_has_epoch_loss_score_and_time_left(monkeypatch):
    terminal = Terminal(monkeypatch)
    runner, hook = runner_of(), ProgressHook('coco/segm_mAP')
    runner.message_hub.runtime_info['best_score'] = 0.5  # a resumed run
    hook.before_train(runner)
    train_epoch(runner, hook, {'coco/segm_mAP': 0.404})
    train_epoch(runner, hook)
    hook.display.refresh()
    hook.after_train(runner)
    shown = re.sub('█.*?[|]', '█|', terminal.text()).split('\r')
    assert 'Epoch 2/4: |█| 6/12  00:00 left, loss 0.75  mask AP 40.4, best 50.0' in shown


def test_lines_appear_above_the_bar_and_upstream_routine_does_not(monkeypatch):
    terminal = Terminal(monkeypatch)
    runner, hook = runner_of(), ProgressHook()
    console = runner.logger.handlers[0]
    hook.before_train(runner)
    record = logging.LogRecord('m', logging.INFO, f'{mmengine.__path__[0]}/hooks/x.py', 1, 'routine', (), None)
    stop = logging.LogRecord('m', logging.INFO, f'{mmengine.__path__[0]}/early_stopping_hook.py', 1, 'stop', (), None)
    fault = logging.LogRecord('m', logging.ERROR, f'{mmengine.__path__[0]}/hooks/x.py', 1, 'fault', (), None)
    runner.logger.info('logged')
    runner.logger.handle(record)
    runner.logger.handle(stop)
    runner.logger.handle(fault)
    hook.on_exit(runner)
    hook.on_exit(runner)
    assert (runner.logger.handlers, console.filters) == ([console], [])
    runner.logger.handle(record)
    lines = [line.rpartition('\r')[2].strip() for line in terminal.text().replace('\r\n', '\n').split('\n')]
    assert [line for line in lines if line] == ['INFO logged', 'INFO stop', 'ERROR fault', 'INFO routine']


def test_scores_for_people():
    names = ('coco/bbox_mAP', 'coco/segm_mAP', 'accuracy/top1', 'mine/bbox_mAP_50', 'coco/AR@100')
    assert [named_score(name, value) for name, value in zip(names, (0.457, 0.4, 78.25, 0.7, 0.602), strict=True)] == [
        'AP 45.7',
        'mask AP 40.0',
        'top-1 78.2',
        'AP50 70.0',
        'AR@100 60.2',
    ]
