"""The functions of the package are its commands: the same options, the same values."""

import argparse
import json
from fractions import Fraction
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

import tokennorm
from experiments.shapes import CLASSES
from tests.helpers.commands import as_dict, tool
from tests.helpers.handmade_onnx import write_handmade
from tests.helpers.scalars import logged
from tests.helpers.trained import CONFIG, few, options
from tokennorm.base.messages import UserError
from tokennorm.commands.export import export
from tokennorm.images.pixels import CV_LOG

NAMES = ('audit', 'benchmark', 'check', 'compare', 'predict', 'publish', 'split', 'test', 'train')
FUNCTIONS = dict({name: getattr(tokennorm, name) for name in NAMES}, export=export)
OF_A_SHELL = {'help', 'traceback', 'json', 'gpus'}  # the last one starts other processes


def parser_of(name):
    return import_module(f'tokennorm.cli.{name}').build_parser()


def plain(value):
    return () if value == [] else str(value) if isinstance(value, Path) else value


@pytest.mark.parametrize('name', FUNCTIONS)
def test_arguments_are_the_options_of_the_command(name):
    actions = parser_of(name)._actions
    shown = [one for one in actions if one.help != argparse.SUPPRESS and one.dest not in OF_A_SHELL]
    of_command = {one.dest: plain(one.default) for one in shown if one.option_strings and not one.required}
    parameters = signature(FUNCTIONS[name]).parameters.values()
    named = [one for one in parameters if one.default is not Parameter.empty]
    of_function = {one.name: one.default for one in named}
    optional = {one.dest: None for one in shown if not one.option_strings and one.nargs == '?'}
    assert of_function == {**of_command, **optional, **(dict(data=None) if name == 'train' else {})}
    needed = {one.dest for one in shown if one.required or (not one.option_strings and one.nargs != '?')}
    assert {one.name for one in parameters if one.default is Parameter.empty} == needed


@pytest.mark.parametrize('name', FUNCTIONS)
def test_the_output_option_is_out(name):
    actions = parser_of(name)._actions
    shown = [option for one in actions if one.help != argparse.SUPPRESS for option in one.option_strings]
    assert '--work-dir' not in shown
    outputs = [one for one in actions if one.dest == 'out']
    assert bool(outputs) == (name not in ('benchmark', 'split'))


def printed(name, words, capfd, replaced='\0'):
    """What a command prints with `--json`; the path of its output folder is left out."""
    capfd.readouterr()
    tool(name)([*map(str, words), '--json'])
    return json.loads(capfd.readouterr().out.replace(str(replaced), '@'))


def returned(result, replaced='\0'):
    return json.loads(json.dumps(result.as_dict()).replace(str(replaced), '@'))


@pytest.fixture
def two(tmp_path):
    """Output folders of the command and of the function."""
    return tmp_path / 'command', tmp_path / 'python'


@pytest.mark.slow
def test_train(demo_data, two, capfd, without_report):
    given = options(demo_data, **{'randomness.seed': 1})
    said = printed('train', [CONFIG, '--out', two[0], '--cfg-options', *given], capfd, two[0])
    result = tokennorm.train(CONFIG, out=two[1], cfg_options=as_dict(given))
    assert returned(result, two[1]) == said
    assert result.metrics['coco/bbox_mAP'] == said['metrics']['coco/bbox_mAP']
    assert (result.work_dir, result.checkpoint.parent) == (two[1], two[1])


def test_train_into_one_new_folder(demo_trained):
    with pytest.raises(UserError, match='out and work_dir are the same option'):
        tokennorm.train(CONFIG, out='a', work_dir='b')
    with pytest.raises(UserError, match='has checkpoints of an earlier training run'):
        tokennorm.train(CONFIG, work_dir=demo_trained)


def test_test_finds_what_the_training_found(demo_trained, tmp_path):
    (validated,) = (entry for entry in logged(demo_trained) if 'coco/bbox_mAP' in entry)
    result = tokennorm.test(demo_trained, out=tmp_path, cfg_options=as_dict(few()), report=True)
    assert result.metrics.items() <= validated.items()
    assert (result.as_dict(), result.report) == (result.metrics, tmp_path / 'report.html')
    assert result.report.is_file()
    row = next(line.split() for line in str(result).splitlines() if 'coco/bbox_mAP' in line)
    assert row[1] == f'{100 * validated["coco/bbox_mAP"]:.1f}'


@pytest.mark.slow
def test_test(demo_data, demo_trained, two, capfd):
    said = printed('test', [demo_trained, '--out', two[0], '--cfg-options', *few()], capfd)
    result = tokennorm.test(demo_trained, out=two[1], cfg_options=as_dict(few()), report=True)
    assert result.as_dict() == result.metrics == said
    assert 0 <= said['coco/bbox_mAP'] <= 1
    of_detector = tokennorm.Detector(demo_trained, device='cpu').test(demo_data, out=two[1])
    assert of_detector.metrics == pytest.approx(said, abs=1e-6)
    assert of_detector.checkpoint == result.checkpoint


def test_predict(model_file, images, two, capfd):
    words = [model_file, images, '--out', two[0], '--score-thr', 0.5, '--save-txt']
    said = printed('predict', words, capfd, two[0])
    detector = tokennorm.Detector(model_file)
    results = [
        tokennorm.predict(given, images, out=two[1] / str(i), score_thr=0.5, save_txt=True)
        for i, given in enumerate((model_file, str(model_file), detector))
    ]
    assert [returned(result, result.out) for result in results] == [said] * 3
    assert (said['images'], said['detections'], said['shown'], said['problems']) == (3, 3, 3, [])
    content = [json.loads((folder / 'detections.json').read_text()) for folder in (two[0], results[2].out)]
    assert content[0] == content[1]


@pytest.mark.parametrize(
    ('score_thr', 'recommended', 'hint'),
    [(0.5, [0.6, 0.7], 'Too many boxes?'), (0.8, [0.6, 0.7], 'No boxes?'), (0.8, [0.9, 0.9], None)],
)
def test_predict_names_the_recommended_thresholds(score_thr, recommended, hint, images, tmp_path):
    file = write_handmade(tmp_path / 'model.onnx', thresholds=recommended)
    said = str(tokennorm.predict(file, images, out=tmp_path / 'out', score_thr=score_thr))
    assert ('--thresholds best' in said) == (hint is not None)
    assert hint is None or hint in said


def test_predict_warns_of_what_was_left_out(model_file, images, tmp_path):
    (images / 'broken.png').write_bytes(b'')
    with pytest.warns(tokennorm.base.messages.IncompleteWarning, match='1 of 4 files could not be read: broken.png'):
        result = tokennorm.predict(model_file, images, out=tmp_path / 'out')
    assert (result.images, len(result.unread)) == (3, 1)


def test_predict_notes_what_is_read_in_part(model_file, images, tmp_path, capsys):
    frames = [Image.new('RGB', (96, 64), color) for color in ('red', 'blue')]
    frames[0].save(images / 'two.gif', save_all=True, append_images=frames[1:])
    for chosen, said in ((dict(), 1), (dict(strict=True), 1), (dict(allow=['partly-read-image']), 0)):
        assert tokennorm.predict(model_file, images, out=tmp_path / 'out', **chosen).images == 4
        line = 'note: image files of which a part is read: two.gif (the first of several frames) [partly-read-image]'
        assert capsys.readouterr().out.count(line) == said


def test_a_video_with_a_pause_is_whole_and_uneven(model_file, tmp_path):
    av = pytest.importorskip('av')
    with av.open(str(tmp_path / 'pause.mkv'), 'w') as file:
        stream = file.add_stream('mpeg4', rate=25)
        stream.width, stream.height, stream.codec_context.time_base = 64, 48, Fraction(1, 1000)
        for i in range(60):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 4 * i, np.uint8), format='rgb24')
            frame.pts, frame.time_base = 40 * i + 9000 * (i >= 30), Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    result = tokennorm.predict(model_file, tmp_path / 'pause.mkv', out=tmp_path / 'out')
    frames = json.loads((tmp_path / 'out' / 'detections.json').read_text())['images']
    assert [frames[i]['time'] for i in (0, 29, 30, 59)] == [0, 1.16, 10.2, 11.36]
    assert 'up to 9.0 seconds off' in result.lines[1]
    assert not [line for line in result.lines if 'trimmed' in line]


@pytest.mark.parametrize('source', ['images', 'video.avi'])
def test_predict_leaves_the_level_of_opencvs_log(source, model_file, images, tmp_path):
    frames = cv2.VideoWriter(str(tmp_path / 'video.avi'), cv2.VideoWriter.fourcc(*'MJPG'), 5, (96, 64))
    frames.write(np.zeros((64, 96, 3), np.uint8))
    frames.release()
    before = CV_LOG.getLogLevel()
    CV_LOG.setLogLevel(4)
    try:
        tokennorm.predict(model_file, images if source == 'images' else tmp_path / source, out=tmp_path / 'out')
        assert CV_LOG.getLogLevel() == 4
        with pytest.raises(UserError, match='cannot be opened as a video'):
            tokennorm.predict(model_file, __file__, out=tmp_path / 'out')
        assert CV_LOG.getLogLevel() == 4
    finally:
        CV_LOG.setLogLevel(before)


def test_check(root, demo_data, two, capfd):
    said = printed('check', [demo_data, '--out', two[0]], capfd, two[0])
    result = tokennorm.check(demo_data, out=two[1])
    assert returned(result, two[1]) == said
    assert said['splits']['train']['images'] == 4
    assert result.ok
    assert sorted(result.sheets) == ['train', 'val']
    assert all(sheet.is_file() for sheet in result.sheets.values())
    assert ['train', '4'] in [line.split()[:2] for line in str(result).splitlines()]


def test_check_returns_errors(boxes, tmp_path):
    result = tokennorm.check(boxes, out=tmp_path, masks=True)
    assert not result.ok
    assert {one.severity for one in result.findings} == {'error'}
    assert result.mask_errors
    assert result.sheets == {}
    assert tokennorm.check(boxes, out=tmp_path).ok


def test_check_of_a_config(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without the data that `make demo` leaves in the repository
    said = printed('check', [CONFIG], capfd)
    result = tokennorm.check(CONFIG)
    assert result.as_dict() == said
    assert said['without_data'] == ['train', 'val', 'test']
    assert 'no-batch' in said['not_applied']


def test_split(coco, two, capfd):
    for folder in two:
        folder.mkdir()
        (folder / 'all.json').write_bytes((coco / 'annotations' / 'train.json').read_bytes())
        (folder / 'images').symlink_to(coco / 'images')
    said = printed('split', [two[0] / 'all.json', '--val', 0.25, '--seed', 3], capfd, two[0])
    result = tokennorm.split(two[1] / 'all.json', val=0.25, seed=3)
    assert returned(result, two[1]) == said == dict(files=dict(train='@/train.json', val='@/val.json'))
    contents = [[json.loads((folder / f'{one}.json').read_text()) for one in ('train', 'val')] for folder in two]
    assert contents[0] == contents[1]
    assert [len(one['images']) for one in contents[0]] == [6, 2]


def test_publish(demo_trained, two, capfd):
    said = printed('publish', [demo_trained, two[0] / 'd.pth', '--license', 'MIT'], capfd, two[0])
    result = tokennorm.publish(demo_trained, two[1] / 'd.pth', license='MIT')
    assert returned(result, two[1]) == said
    assert result.megabytes == result.file.stat().st_size / 1e6
    assert 'license: mit' in result.card.read_text()
    detector = tokennorm.Detector(demo_trained, device='cpu')
    assert tokennorm.publish(detector, two[1] / 'e.pth').source == Path(detector.checkpoint)


def test_benchmark(demo_data, demo_trained, tmp_path, capfd):
    path = write_handmade(tmp_path / 'd.onnx', classes=CLASSES, category_ids=[1, 2, 3, 4])
    said = printed('benchmark', [demo_trained, path, '--data', demo_data], capfd)
    result = tokennorm.benchmark(demo_trained, path, demo_data)
    assert [one.name for one in result.rows] == ['PyTorch', str(path)]
    assert all(one.milliseconds > 0 for one in result.rows)
    values = returned(result)
    for row in (*values['rows'], *said['rows']):
        row.pop('milliseconds')
    assert values == said
    assert said['images'] == 3


def test_compare(demo_trained, two, capfd):
    said = printed('compare', [demo_trained, demo_trained, '--out', two[0] / 'page.html'], capfd, two[0])
    result = tokennorm.compare(demo_trained, demo_trained, out=two[1] / 'page.html')
    assert returned(result, two[1]) == said
    assert result.results['bbox'].difference == 0
    assert result.same_data
    assert result.page.is_file()


@pytest.mark.slow
def test_export(demo_data, demo_trained, two, capfd):
    small = ['model.test_cfg.score_thr=0.0', 'model.test_cfg.max_per_img=20']
    words = [demo_trained, two[0] / 'd.onnx', '--verify', demo_data, '--cfg-options', *small]
    said = printed('export', words, capfd, two[0])
    detector = tokennorm.Detector(demo_trained, device='cpu', options=as_dict(small))
    result = detector.export(two[1] / 'd.onnx', verify=demo_data)
    values = returned(result, two[1])
    assert values['exported_ap'] == pytest.approx(said['exported_ap'])
    assert values['exported_ap'] == pytest.approx(values['pytorch_ap'], abs=1e-4)
    assert values['classes'] == said['classes'] == list(CLASSES)
    image = next((demo_data / 'images' / 'val').iterdir())
    assert tokennorm.Detector(result.file)(image, 0.0).class_names
