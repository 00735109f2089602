"""Detectors named by a work directory, by the name of a published one, or by a config and a checkpoint."""

import os

import pytest

from tokennorm.base.messages import UserError
from tokennorm.cli.predict import parse_args as predict_args
from tokennorm.commands.opening import name_detector
from tokennorm.config.detector_files import config_of, detector_files

CONFIG = 'retinanet_pvt-mini_fpn_shapes'


@pytest.fixture
def work_dir(tmp_path):
    folder = tmp_path / 'run'
    folder.mkdir()
    for i, name in enumerate(('old.py', 'new.py')):
        (folder / name).write_text(f"model = dict(type='A', b=[1, (2.5, -3)])\nwork_dir = '{name}'\n")
        os.utime(folder / name, (i, i))
    (folder / 'best_coco_bbox_mAP_epoch_1.pth').write_bytes(b'')
    return folder


def test_work_directory_has_config_and_checkpoint(work_dir):
    assert detector_files(work_dir) == (str(work_dir / 'new.py'), str(work_dir))
    one = str(work_dir / 'best_coco_bbox_mAP_epoch_1.pth')
    assert detector_files(work_dir, one) == (str(work_dir / 'new.py'), one)
    assert detector_files(CONFIG, work_dir) == (CONFIG, str(work_dir))


@pytest.mark.parametrize(
    'script',
    [
        "open('executed', 'w')",
        'import os, sys',
        "work_dir = open('executed', 'w')",
        "work_dir = 'x'\nmodel = dict(a=__import__('os').getcwd())",
        "_base_ = 'other.py'",
        "_base_ = 'other.py'\nwork_dir = 'x'",
        "work_dir = 'x'\nfor _ in []: pass",
        'not python',
    ],
)
def test_no_file_is_run_that_training_did_not_write(work_dir, script, tmp_path):
    for folder in (work_dir, tmp_path):
        (folder / 'newest.py').write_text(script)
    assert config_of(work_dir) == work_dir / 'new.py'
    with pytest.raises(UserError, match='not run'):
        config_of(tmp_path)


def test_config_needs_a_checkpoint(tmp_path):
    with pytest.raises(UserError, match=r'did you mean retinanet_pvt-t\?'):
        detector_files('retinanet_pvtt')
    with pytest.raises(UserError, match='After a config, name a checkpoint'):
        detector_files(CONFIG)
    with pytest.raises(UserError, match='has no config of a training run'):
        config_of(tmp_path)


def test_predict_takes_a_detector_and_paths(work_dir):
    args = predict_args([str(work_dir), 'a.jpg', 'b.jpg'])
    assert (args.detector, args.checkpoint, args.path) == (str(work_dir), None, ['a.jpg', 'b.jpg'])
    assert predict_args(['retinanet_pvt-t', 'a.jpg']).path == ['a.jpg']
    args = predict_args([CONFIG, str(work_dir), 'a.jpg'])
    assert (args.detector, args.checkpoint, args.path) == (CONFIG, str(work_dir), ['a.jpg'])
    for one in (str(work_dir / 'best_coco_bbox_mAP_epoch_1.pth'), 'published.safetensors'):
        args = predict_args([str(work_dir), one, 'a.jpg'])
        assert (args.checkpoint, args.path) == (one, ['a.jpg'])
    args = predict_args([CONFIG, 'a.jpg'])
    with pytest.raises(UserError, match='After a config, name a checkpoint'):
        name_detector(args.detector, args.checkpoint, None)
    named = name_detector(work_dir, None, {'a': 1})
    assert (named.config, named.checkpoint, named.cfg_options) == (str(work_dir / 'new.py'), str(work_dir), dict(a=1))
