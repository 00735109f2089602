"""Wrong arguments of the functions are one line that says what was expected; right ones of other kinds are taken."""

import io
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tokennorm
from tokennorm.base.messages import UserError
from tokennorm.config.detector_files import Named

ARRAY = np.zeros((8, 8, 3), np.uint8)
PREDICT = [
    (dict(path=ARRAY), r'must be files or a folder, not ndarray; Detector\(...\)\(images\) takes arrays'),
    (dict(path=[ARRAY]), 'must be files or a folder, not ndarray'),
    (dict(path=Image.new('RGB', (9, 9))), 'must be files or a folder, not Image'),
    (dict(path=[]), 'empty list'),
    (dict(path=''), "path '' must be a path"),
    (dict(detector='a.jpg'), 'a.jpg is not a detector: name one before it'),
    (dict(detector=None), 'detector None must be a work directory, a name or a Detector'),
    (dict(detector='a.pt2'), 'torch.export.load'),
    (dict(score_thr='0.5'), "score_thr '0.5' must be a number from 0 to 1"),
    (dict(score_thr=True), 'score_thr True must be a number'),
    (dict(overlap=1), 'overlap 1 must be below 1'),
    (dict(batch_size=0), 'batch_size 0 must be an integer of at least 1'),
    (dict(every=1.5), 'every 1.5 must be an integer'),
    (dict(tiles=True), 'tiles True must be an integer'),
    (dict(classes=['rund']), r'did you mean round\?'),
    (dict(classes=3), 'classes 3 must be a list of texts'),
    (dict(out=3), 'out 3 must be a path'),
    (dict(device='cpu'), 'an exported file takes no checkpoint, device'),
    (dict(allow=['bbox-as-cornres']), r'did you mean bbox-as-corners\?'),
    (dict(cfg_options=['a=1']), r"cfg_options=\['a=1'\] must be a dict"),
    (dict(track=True), 'track and every need a video'),
]


@pytest.mark.parametrize(('given', 'message'), PREDICT, ids=lambda value: str(value)[:40])
def test_predict(given, message, model_file, images, tmp_path):
    with pytest.raises(UserError, match=message):
        tokennorm.predict(**dict(detector=model_file, path=images, out=tmp_path / 'out') | given)


@pytest.mark.parametrize(
    ('use', 'message'),
    [
        (lambda: tokennorm.check(None), 'data None must be a path'),
        (lambda: tokennorm.check('none'), 'data none not found'),
        (lambda: tokennorm.check('none', num_images=0), 'num_images 0 must be an integer of at least 1'),
        (lambda: tokennorm.split('none'), 'none not found'),
        (lambda: tokennorm.split('none', val='a'), "val 'a' must be a number"),
        (lambda: tokennorm.compare('none', 'none', out=5), 'out 5 must be a path'),
        (lambda: tokennorm.publish('none', 'out'), 'out: name a file that ends in .pth or .safetensors'),
        (lambda: tokennorm.benchmark('retinanet_pvt-t', 5, 'none'), 'files 5 must be a path, or a list of paths'),
        (lambda: tokennorm.benchmark('retinanet_pvt-t', [], 'none'), r'files \[\] must be a path'),
        (lambda: tokennorm.benchmark('retinanet_pvt-t', 'a.pt', 'none'), 'a.pt must be an .onnx or .xml file'),
        (lambda: tokennorm.benchmark('a.onnx', 'a.onnx', 'none'), 'needs the work directory'),
        (lambda: tokennorm.test('retinanet_pvt-t', data='none'), 'data none not found'),
        (lambda: tokennorm.test('retinanet_pvt-t', launcher='torch'), r'did you mean pytorch\?'),
        (lambda: tokennorm.test('retinanet_pvt-t', out='a.pkl'), '; predictions writes a .pkl file'),
        (lambda: tokennorm.train(data='.', allow=5), 'allow 5 must be a list of names'),
        (lambda: tokennorm.train(data='.', ema='yes'), "ema 'yes' must be True or False"),
        (lambda: tokennorm.train(data='.', resume=3), 'resume 3 must be True, False or a checkpoint'),
        (lambda: tokennorm.Detector(['a']), r"detector \['a'\] must be a path"),
        (lambda: tokennorm.Detector('a', options=[1]), r'options=\[1\] must be a dict'),
    ],
)
def test_others(use, message):
    with pytest.raises(UserError, match=message):
        use()


def test_methods_of_an_exported_file(model_file, tmp_path):
    detector = tokennorm.Detector(model_file)
    for use in (detector.test, lambda: detector.export(tmp_path / 'a.onnx')):
        with pytest.raises(UserError, match='needs the work directory, or the config and the checkpoint'):
            use()
    with pytest.raises(UserError, match='is used as it is'):
        tokennorm.predict(_Own('mine'), 'a.jpg', device='cpu')


class _Own(tokennorm.Detector):
    opened_with = Named('a.py', 'a.pth', {})

    def __init__(self, name):
        self.checkpoint = name


def test_paths_begin_at_home_and_threads_share_a_detector(model_file, images, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    detector, results = tokennorm.Detector(model_file), []

    def use(name):
        results.append(tokennorm.predict(detector, [Path('~/in/a.png'), '~/in/b/c.png'], out=f'~/{name}'))

    threads = [threading.Thread(target=use, args=(name,)) for name in 'xyz']
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.detections for result in results] == [2, 2, 2]
    assert {result.out for result in results} == {tmp_path / name for name in 'xyz'}
    assert all((tmp_path / name / 'detections.json').is_file() for name in 'xyz')


class Full(io.StringIO):
    """A standard output that cannot be written to."""

    def write(self, text):
        raise OSError(28, 'No space left on device')


def test_results_are_written_where_the_output_is_closed(model_file, images, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'stdout', None)
    assert tokennorm.predict(model_file, images, out=tmp_path / 'none').images == 3
    monkeypatch.setattr(sys, 'stdout', Full())
    with pytest.raises(OSError, match='No space left'):
        tokennorm.predict(model_file, images, out=tmp_path / 'full')
    assert (tmp_path / 'full' / 'detections.json').is_file()


def test_importing_the_package_imports_nothing_else():
    code = """
import sys, tokennorm
assert set(tokennorm.__all__) <= set(dir(tokennorm))
assert tokennorm.__all__ == sorted(tokennorm.__all__)
assert {*tokennorm._LAZY, '__version__', 'config'} == set(tokennorm.__all__)
names = ('torch', 'numpy', 'cv2', 'mmengine', 'mmdet', 'tokennorm.commands')
assert not [name for name in names if name in sys.modules]
for name in ('train', 'test', 'predict', 'check', 'split', 'compare', 'publish', 'benchmark'):
    getattr(tokennorm, name)
assert not [name for name in names[:-1] if name in sys.modules]
"""
    subprocess.run([sys.executable, '-c', code], check=True)
