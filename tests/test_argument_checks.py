"""Mistakes in arguments end a command at once: before torch is imported, and before the data is read."""

import subprocess
import sys

import pytest

from tokennorm import argument_checks
from tokennorm.argument_checks import check_training

CONFIG = 'retinanet_pvt-mini-dtn_fpn_bccd'


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (dict(epochs=0), r'--epochs \(train_cfg.max_epochs\) 0 must be an integer of at least 1'),
        (dict(epochs=-1), r'--epochs .* -1 must be an integer of at least 1'),
        (dict(epochs=1.5), r'--epochs .* 1.5 must be an integer of at least 1'),
        (dict(lr=float('nan')), r'--lr nan must be above 0'),
        (dict(patience=0), r'--patience 0 must be at least 1'),
        (dict(workers=-1), r'--workers -1 must be at least 0'),
        (dict(image_size=31), r'--image-size 31 must be at least 32 pixels'),
        (dict(log=['tensorbord']), r"--log: no logger 'tensorbord' \(did you mean tensorboard\?\); there are"),
        (dict(data='no_folder'), r'^data no_folder not found; it must be a folder, or the data.yaml'),
        (dict(resume='no.pth'), r'--resume: checkpoint no.pth not found'),
        (dict(config=None), '--data DIR'),
        (dict(model='pvt-t'), 'leave them out'),
        (dict(config=None, data='.', model='pvt-tt'), r'did you mean pvt-t\?'),
        (dict(config=None, data='.', norm='LN'), r'did you mean ln\?'),
        (dict(config='retinanet_pvt-mini-dnt_fpn_bccd'), rf'not found \(did you mean {CONFIG}\?\)'),
    ],
)
def test_what_cannot_be_trained_is_one_line(arguments, message):
    with pytest.raises((ValueError, OSError), match=message) as found:
        check_training(**dict(config=CONFIG) | arguments)
    assert '\n' not in str(found.value)
    for key in ('epochs', 'patience'):
        check_training(CONFIG, **{key: 1})


def test_missing_logger_package_is_named_with_its_pip_command(monkeypatch):
    monkeypatch.setattr(argument_checks, 'find_spec', lambda name: None)
    with pytest.raises(ImportError, match=r'--log wandb: the package is not installed; run `pip install wandb`'):
        check_training(CONFIG, log=['wandb'])
    monkeypatch.setattr(argument_checks, 'find_spec', lambda name: name)
    check_training(CONFIG, log=['wandb', 'clearml'])


def test_the_commands_find_mistakes_before_they_import_torch():
    code = """
import sys
from importlib import import_module
for name, *words in (
    ['train', {config!r}, '--epochs', '0'],
    ['train', {config!r}, '--data', 'no_folder'],
    ['train', 'retinanet_pvt-mini-dnt_fpn_bccd'],
    ['test', 'none', 'none.pth'],
    ['predict', 'none', 'none.pth', 'image.jpg'],
    ['export', 'none', 'none.pth', 'out.onnx'],
    ['check', 'no_folder'],
    ['split', 'no_folder'],
):
    try:
        import_module(f'tokennorm.cli.{{name}}').main(words)
    except SystemExit as ended:
        assert str(ended.code).startswith('error: '), ended.code
        assert 'torch' not in sys.modules, name
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, '-c', code.format(config=CONFIG)], check=True)
