"""The generated parts of README.md, and `python -m mmcv_ops`."""

import mmcv
import pytest
import tables
import torch
from mmcv_ops import __main__, coverage

CONFIG = """
default_scope = 'mmdet'
model = dict(
    type='RetinaNet',
    neck=dict(type='FPN'),
    bbox_head=dict(type='RepPointsHead', loss_cls=dict(type='FocalLoss')),
    middle=dict(type='SparseConv3d'),
    test_cfg=dict(nms=dict(type='nms_rotated')))
"""


def test_readme_is_generated():
    """Write it again with `python tables.py` after a change of operators."""
    if mmcv.__version__ != '2.3.6':
        pytest.skip('the README is written with onedl-mmcv 2.3.6')
    text = tables.README.read_text(encoding='utf-8')
    assert tables.written(text) == text
    assert text.count('\n| ') > 30
    assert '`deform_conv2d`' in text


def test_times_are_ordered_by_size(monkeypatch):
    steps = [
        ('a, 200 boxes', 2.5),
        ('b, 12 x 12', 0.1),
        ('c', 1.0),
        ('a, 5,000 x 200', 0.5),
        ('d, 200 x 9', 'no CPU form'),
    ]
    found = dict(machine=dict(torch='2.11', threads=1), steps=[dict(step=name, ms=3, ratio=r) for name, r in steps])
    monkeypatch.setattr(tables, 'benchmarks', lambda: found)
    lines = tables.times().splitlines()
    assert lines[0] == 'Measured with torch 2.11: b, 12 x 12 0.1; c 1.0.'
    assert lines[2:] == [
        '| step | 200 boxes | 1,000 boxes | 5,000 boxes |',
        '|---|---|---|---|',
        '| a | 2.5 |  | 0.5 |',
    ]


def test_a_dtype_that_does_not_run_is_not_named(monkeypatch):
    import mmcv_cases

    def only_float32(ops):
        values = mmcv_cases.random(3, grad=False)
        assert values.dtype != torch.float16
        return dict(output=values / (values.dtype != torch.bfloat16))  # infinite in bfloat16

    monkeypatch.setitem(mmcv_cases.CASES, 'fake-1', only_float32)
    assert tables.dtypes(['fake_forward']) == 'float32, float64'
    assert tables.dtypes(['unknown']) == 'float32; others not measured'


def test_missing_names_are_those_that_raise():
    missing = coverage.missing()
    assert {'ball_query', 'sparse_ops', 'voxelize'} <= set(missing)
    assert not {'nms', 'convex_iou', 'roi_align', 'pixel_group', 'info'} & set(missing)


def test_summary(ops, capsys, monkeypatch):
    monkeypatch.setattr(__main__, 'running', lambda: 'mmcv_ops')
    assert __main__.main([]) == 0
    out = capsys.readouterr().out
    assert 'Not implemented: assign_score_withk' in out


def test_operators_of_a_config(ops, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(__main__, 'running', lambda: 'mmcv_ops')
    path = tmp_path / 'config.py'
    path.write_text(CONFIG)
    assert __main__.main([str(path)]) == 1
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert 'RepPointsHead' in rows['deform_conv']
    assert 'FocalLoss' in rows['focal_loss']
    assert 'nms_rotated' in rows['nms']
    assert 'missing' in rows['sparse_ops'] or 'missing' in rows['sparse_conv']
    path.write_text(CONFIG.replace("    middle=dict(type='SparseConv3d'),\n", ''))
    assert __main__.main([str(path)]) == 0
    assert 'Nothing that this config names is missing.' in capsys.readouterr().out


def test_a_file_that_is_not_a_config(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(__main__, 'running', lambda: 'mmcv_ops')
    broken = tmp_path / 'broken.py'
    broken.write_text('model = dict(')
    for path in (tmp_path / 'nope.py', broken):
        assert __main__.main([str(path)]) == 2
        assert capsys.readouterr().err.startswith(f'{path} is not a config that can be read: ')
    assert __main__.main(['mmnope::x.py']) == 2
    assert capsys.readouterr().err.endswith("ModuleNotFoundError: No module named 'mmnope'\n")


def test_a_package_that_refuses_its_versions(capsys, monkeypatch, tmp_path):
    """As mmrotate 1.0.0rc1 with mmdet 3.3.0: it raises AssertionError when it is imported."""

    def refuse(config):
        raise AssertionError('MMDetection 3.3.0 is incompatible')

    monkeypatch.setattr(__main__, 'running', lambda: 'mmcv_ops')
    monkeypatch.setattr(coverage, 'of_config', refuse)
    path = tmp_path / 'config.py'
    path.write_text('model = dict()')
    assert __main__.main([str(path)]) == 2
    assert 'AssertionError: MMDetection 3.3.0 is incompatible' in capsys.readouterr().err


def test_a_config_of_an_installed_package(ops, capsys, monkeypatch):
    monkeypatch.setattr(__main__, 'running', lambda: 'mmcv_ops')
    pytest.importorskip('mmdet')
    assert __main__.main(['mmdet::retinanet/retinanet_r50_fpn_1x_coco.py']) == 0
    out = capsys.readouterr().out
    assert any(line.startswith('focal_loss ') and 'FocalLoss' in line for line in out.splitlines())
