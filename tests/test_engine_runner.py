"""Checks before a training run starts or continues."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from torch import nn

from tests.helpers import toy_training as toys
from tokennorm.checkpoints import trained_classes
from tokennorm.config_files import use_options
from tokennorm.engine.build import _find_checkpoint_to_resume, _load_from, build_runner

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
    assert trained_classes(path) == classes
    runner = SimpleNamespace(model=model, train_dataloader=SimpleNamespace(dataset=dataset))
    cfg = dict(load_from=str(path), resume=True)
    _load_from(runner, cfg, training=True)
    dataset = SimpleNamespace(metainfo=[dict(classes=('b', 'a')), dict(classes=('b', 'a'), palette=[1, 2])])
    runner.train_dataloader.dataset = dataset
    if classes is not None:
        with pytest.raises(ValueError, match=r'are in another order: 2 \(a, b\) and 2 \(b, a\)'):
            _load_from(runner, cfg, training=True)


def test_one_of_several_processes_warns(tmp_path, monkeypatch, capsys):
    def start(rank):
        monkeypatch.setenv('RANK', rank)
        _find_checkpoint_to_resume(Config(dict(work_dir=str(tmp_path), resume=True)))
        use_options(Config(dict(model=dict(type='A', depth=1))), {'model.dept': 2})
        return capsys.readouterr().out

    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert start('1') == ''
    with pytest.warns(UserWarning, match='training') as found:
        assert 'warning' in start('0')
    assert len(found) == 1


def test_a_config_may_have_no_scope(tmp_path):
    """As mmengine has it for configs in pure Python, whose types are classes."""
    cfg = toys.config(tmp_path, train_cfg=toys.EPOCHS)
    cfg.default_scope = None
    cfg.model.type = toys.ToyModel
    assert isinstance(build_runner(cfg, ('train', 'val')).model, toys.ToyModel)
