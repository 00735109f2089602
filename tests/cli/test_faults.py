"""Unexpected errors: only those that this package's own code raises are called its fault."""

import json
import sysconfig
from pathlib import Path

import mmdet
import mmengine
import pytest
import torch
from torch._utils import ExceptionWrapper

from tests.helpers.code_of import code_of, own_code
from tokennorm.cli.command import command

SITE = Path(sysconfig.get_path('purelib'))
OURS, THEIRS = 'this is a fault of TokenNorm', 'not by TokenNorm'


def in_file(file):
    return lambda text, **names: code_of(file, text, **names)


def chain(*calls):
    """Returns a function of the first file that calls one of the next, and so on; the last one runs a statement."""
    (*outer, last), text = calls[:-1], calls[-1]
    function = last(text, torch=torch, json=json)
    for one in reversed(outer):
        function = one('inner()', inner=function)
    return function


MMDET, LOGGER, TIMM = (in_file(SITE / name / 'a.py') for name in ('mmdet', 'wandb', 'timm'))
ENGINE, TORCH = in_file(SITE / 'mmengine' / 'runner.py'), in_file(SITE / 'torch' / 'nn' / 'module.py')
USER = in_file('/home/me/model.py')
RAISES = "raise KeyError('x')"
SMALL, ALONE = 'the images may be too small', 'a batch of one image is too little'


@pytest.mark.parametrize(
    ('function', 'expected'),
    [
        (chain(own_code, RAISES), OURS),
        (chain(ENGINE, MMDET, own_code, RAISES), OURS),  # such as a backbone or a hook of this package
        (chain(own_code, 'torch.topk(torch.ones(2), 3)'), OURS),
        (chain(own_code, TORCH, RAISES), OURS),
        (chain(own_code, 'json.loads("{")'), OURS),
        (chain(own_code, MMDET, RAISES), "KeyError: 'x': raised by mmdet (mmdet/a.py), line 2, not by TokenNorm"),
        (chain(own_code, ENGINE, TORCH, MMDET, TORCH, RAISES), 'raised by mmdet (mmdet/a.py)'),
        (chain(own_code, ENGINE, MMDET, 'json.loads("{")'), 'raised by mmdet (mmdet/a.py)'),
        (chain(own_code, ENGINE, USER, 'torch.ones(2) @ torch.ones(3)'), 'raised by /home/me/model.py, line 2, not by'),
        (chain(own_code, ENGINE, LOGGER, RAISES), 'raised by wandb (wandb/a.py)'),
        (chain(own_code, TIMM, 'import no_such_module'), 'raised by timm (timm/a.py)'),
        (chain(own_code, 'import no_such_module'), OURS),
        (chain(own_code, ENGINE, RAISES), 'raised by mmengine'),
        (chain(USER, RAISES), 'raised by /home/me/model.py'),
    ],
)
def test_the_component_that_raised_is_named(function, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        command(function)([])
    assert expected in str(ended.value)
    assert (OURS in str(ended.value)) == (expected == OURS)
    assert (THEIRS in str(ended.value)) == (expected != OURS)
    assert '\n' not in str(ended.value)
    assert 'Traceback' in capsys.readouterr().err


def test_an_error_that_own_code_passes_on_is_of_its_cause():
    names = dict(logs=LOGGER('raise OSError("no server")'))
    passes = own_code(
        """try:
        logs()
    except OSError as error:
        raise RuntimeError('logging failed') from error""",
        **names,
    )
    with pytest.raises(SystemExit, match=r'OSError: no server: raised by wandb'):
        command(passes)([])


@pytest.mark.parametrize(('kind', 'expected'), [(MMDET, "KeyError: KeyError: 'x': raised by mmdet"), (own_code, OURS)])
def test_an_error_of_a_data_worker_is_of_the_code_in_its_text(kind, expected):
    try:
        kind(RAISES)()
    except KeyError:
        passed_on = ExceptionWrapper(where='in DataLoader worker process 0')  # as DataLoader does
    with pytest.raises(SystemExit) as ended:
        command(lambda argv: passed_on.reraise())([])
    assert expected in str(ended.value)


@pytest.mark.parametrize(
    ('call', 'text', 'hint'),
    [
        ('torch.topk(torch.ones(2), 3)', 'selected index k out of range', SMALL),
        ('torch.nn.Conv2d(1, 1, 3)(torch.ones(1, 1, 2, 2))', "Kernel size can't be greater than actual", SMALL),
        ('torch.nn.MaxPool2d(3)(torch.ones(1, 1, 2, 2))', 'Output size is too small', SMALL),
        ('torch.nn.BatchNorm2d(1)(torch.ones(1, 1, 1, 1))', 'Expected more than 1 value per channel', ALONE),
    ],
)
def test_images_and_batches_that_are_too_small_for_a_model_are_one_line(call, text, hint, capsys):
    with pytest.raises(SystemExit) as ended:
        command(chain(own_code, ENGINE, MMDET, call))([])
    assert text in str(ended.value)
    assert f'raised by mmdet (mmdet/a.py), line 2, not by TokenNorm; {hint}' in str(ended.value)
    assert not capsys.readouterr().err
    with pytest.raises(SystemExit, match=OURS):
        command(chain(own_code, call))([])


def test_real_packages_are_recognized():
    assert str(Path(mmdet.__file__).parent.parent) == str(SITE) == str(Path(mmengine.__file__).parent.parent)
