"""A checkpoint predicts by itself: its config is inside, and is read as data."""

import json

import numpy as np
import pytest

import tokennorm
from tests.helpers.cases import slow
from tests.helpers.commands import tool
from tests.helpers.scalars import logged
from tokennorm.base.messages import UserError
from tokennorm.checkpoints import Checkpoint
from tokennorm.inference.embedded_config import embedded_config


@pytest.mark.parametrize('suffix', [slow('.pth'), '.safetensors'])
def test_published_file_has_config_and_thresholds_inside(demo_data, demo_trained, tmp_path, suffix):
    tool('publish')([str(demo_trained), str(tmp_path / f'mine{suffix}')])
    (path,) = tmp_path.glob(f'mine-*{suffix}')
    images = str(demo_data / 'images' / 'val')
    tool('predict')([str(path), images, '--out', str(tmp_path / 'out'), '--thresholds', 'best'])
    tool('predict')([str(demo_trained), images, '--out', str(tmp_path / 'run'), '--thresholds', 'best'])
    texts = [(tmp_path / folder / 'detections.json').read_text() for folder in ('out', 'run')]
    assert texts[0] == texts[1]
    tool('test')([str(path), '--data', str(demo_data), '--work-dir', str(tmp_path / 'test')])  # without a config, too
    (validated,) = (entry for entry in logged(demo_trained) if 'coco/bbox_mAP' in entry)
    values = json.loads(next((tmp_path / 'test').glob('*/2*.json')).read_text())
    assert {key: value for key, value in values.items() if 'AP' in key}.items() <= validated.items()
    assert 'coco/bbox_mAP' in values
    detector = tokennorm.Detector(path, device='cpu')
    thresholds = json.loads((demo_trained / 'thresholds.json').read_text())['classes']
    np.testing.assert_array_equal(detector.thresholds('best'), [thresholds[name] for name in detector.classes])


def test_checkpoint_in_a_work_directory_has_its_config_beside(demo_data, demo_trained):
    (path,) = demo_trained.glob('best_*.pth')
    image = next((demo_data / 'images' / 'val').iterdir())
    options = {'model.test_cfg.score_thr': 0.0}
    found, expected = (
        tokennorm.Detector(one, device='cpu', options=options)(image, 0.0) for one in (path, demo_trained)
    )
    assert len(expected)
    np.testing.assert_array_equal(found.boxes, expected.boxes)


def test_config_is_read_as_data():
    text = "a = dict(type='mmdet.X', b=[1, (2, -3.5), None])\nc = {'d e': dict(f=True)}\n"
    cfg = embedded_config(Checkpoint('x.pth', dict(meta=dict(cfg=text))))
    assert cfg.a.b == [1, (2, -3.5), None]
    assert cfg.c['d e'].f is True


@pytest.mark.parametrize(
    'text',
    [
        'import os',
        "a = __import__('os').system('true')",
        "a = dict(type='subprocess.Popen', args='true')",
        "a = [dict(type='os.system', command='true')]",
        "a = dict(type='mmdet.a.b')",
        'a = dict(**b)',
        'a = {**dict(b=1)}',
        'a = [b for b in (1,)]',
        'a = b = 1\nc',
        "a = f'{1}'",
    ],
)
def test_code_inside_a_checkpoint_is_refused(text):
    with pytest.raises(UserError, match=r'the config inside x\.pth is not used, because it is more than plain data'):
        embedded_config(Checkpoint('x.pth', dict(meta=dict(cfg=text))))


def test_checkpoint_without_a_config_asks_for_one():
    with pytest.raises(UserError, match=r'x\.pth has no config inside; name one before it: CONFIG x\.pth'):
        embedded_config(Checkpoint('x.pth', {}))
