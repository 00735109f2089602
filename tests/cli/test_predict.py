"""`tokennorm predict`: with a work directory or an exported file, on folders and videos."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmdet.apis import DetInferencer
from PIL import Image
from pycocotools.coco import COCO

from tests.helpers.commands import tool
from tests.helpers.handmade_onnx import write_handmade
from tests.helpers.http import serve
from tests.helpers.trained import CONFIG
from tokennorm import predict
from tokennorm.base import fast_imports
from tokennorm.base.messages import UserError
from tokennorm.cli.predict import main
from tokennorm.inference.prediction import Results


def write(path, **thresholds):
    path.write_text(json.dumps(dict(classes=thresholds)))
    return path


def test_predict_with_a_file_writes_coco_json_and_drawings(model_file, images, tmp_path, capsys):
    main([str(model_file), str(images), '--out', str(tmp_path / 'out')])
    content = json.loads((tmp_path / 'out' / 'detections.json').read_text())
    assert content['images'] == [
        dict(id=1, file_name='a.png', width=96, height=64),
        dict(id=2, file_name='b/c.png', width=48, height=32),
        dict(id=3, file_name='b/gray.png', width=96, height=64),
    ]
    assert content['categories'] == [dict(id=3, name='round'), dict(id=7, name='square')]
    expected = dict(id=2, image_id=2, category_id=7, bbox=[2, 3, 8, 12], area=96, iscrowd=0, score=0.75)
    assert content['annotations'][1] == expected
    assert np.asarray(Image.open(tmp_path / 'out' / 'vis' / 'b' / 'c.png')).any()
    assert 'detections.json (3 detections on 3 images)' in capsys.readouterr().out


def test_what_is_done_is_kept_when_the_process_is_stopped(model_file, images, tmp_path, monkeypatch, capsys):
    """By SIGTERM, as `docker stop` and batch systems do; the handler of before is back afterwards."""
    add = Results.add

    def add_and_stop(*args):
        add(*args)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Results, 'add', add_and_stop)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match=r'^130$'):
        main([str(model_file), str(images), '--out', str(tmp_path / 'out')])
    assert len(json.loads((tmp_path / 'out' / 'detections.json').read_text())['images']) == 1
    assert signal.getsignal(signal.SIGTERM) == before
    assert capsys.readouterr().err == 'error: interrupted after 1 of 3 images\n'


def test_predict_with_a_file_needs_neither_torch_nor_mmcv(model_file, images, tmp_path):
    code = (
        'import sys\n'
        "sys.modules.update(dict.fromkeys(['torch', 'torchvision', 'mmengine', 'mmcv', 'mmdet', 'PIL']))\n"
        'from tokennorm.cli.main import main\n'
        f"main(['predict', {str(model_file)!r}, {str(images)!r}, '--out', {str(tmp_path / 'out')!r}])"
    )
    subprocess.run([sys.executable, '-c', code], check=True, timeout=100)
    assert (tmp_path / 'out' / 'detections.json').is_file()


def test_drawings_stay_in_the_output_directory(model_file, images, tmp_path, monkeypatch):
    (tmp_path / 'here').mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    (tmp_path / 'here' / 'd.png').write_bytes((images / 'a.png').read_bytes())
    main([str(model_file), 'd.png', '../in/a.png', '--out', 'out'])
    assert [
        image['file_name'] for image in json.loads(Path('out/detections.json').read_text(encoding='utf-8'))['images']
    ] == [
        'here/d.png',
        'in/a.png',
    ]
    assert sorted(map(str, Path('out').rglob('*.png'))) == ['out/vis/here/d.png', 'out/vis/in/a.png']


@pytest.mark.parametrize('out', ['out', '.', '..'])
def test_drawings_are_not_input_of_a_second_run(out, model_file, images, capsys):
    """The output folder may be in the folder of images, and the other way round."""
    for _ in range(2):
        main([str(model_file), str(images), '--out', str(images / out)])
        assert 'on 3 images' in capsys.readouterr().out


@pytest.mark.parametrize(('chosen', 'count'), [('best', 1), ('0.8', 0), ('thresholds.json', 0)])
def test_predict_with_thresholds_filters_the_json(chosen, count, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    write_handmade(tmp_path / 'model.onnx', thresholds=[0.9, 0.75])
    write(tmp_path / 'thresholds.json', round=0.1, square=0.8)
    Image.new('RGB', (96, 64)).save('a.png')
    main(['model.onnx', 'a.png', '--out', 'out', '--thresholds', chosen])
    assert len(json.loads((tmp_path / 'out' / 'detections.json').read_text())['annotations']) == count


def test_predictions_on_a_folder_are_those_of_mmdet(demo_data, demo_trained, tmp_path, monkeypatch, capsys):
    """Boxes, scores and ids as COCO's API reads them, equal to what mmdet's inferencer says from another folder."""
    monkeypatch.chdir(tmp_path)
    (checkpoint,) = demo_trained.glob('epoch_*.pth')
    few = ['--cfg-options', 'model.test_cfg.score_thr=0.0', 'model.test_cfg.max_per_img=5']
    tool('predict')(
        [CONFIG, str(checkpoint), str(demo_data / 'images' / 'val'), '--out', 'out', '--batch-size', '2', *few]
    )
    printed = capsys.readouterr()
    assert f'Checkpoint: {checkpoint} (epoch ' in printed.out
    assert 'Failed to search registry' not in printed.out + printed.err
    assert '--thresholds best' in printed.out  # the checkpoint has them since its validation
    coco = COCO('out/detections.json')
    inferencer = DetInferencer(CONFIG, str(checkpoint), device='cpu', show_progress=False)
    inferencer.model.test_cfg.update(score_thr=0.0, max_per_img=5)
    for image in coco.dataset['images']:
        (expected,) = inferencer(str(demo_data / 'images' / 'val' / image['file_name']))['predictions']
        annotations = coco.imgToAnns[image['id']]
        assert len(annotations) == 5
        boxes = np.array([a['bbox'] for a in annotations])
        boxes[:, 2:] += boxes[:, :2]
        np.testing.assert_allclose(boxes, expected['bboxes'], atol=0.02)
        np.testing.assert_allclose([a['score'] for a in annotations], expected['scores'], atol=1e-4)
        assert [a['category_id'] - 1 for a in annotations] == expected['labels']
        assert (image['width'], image['height']) == (64, 64)
        assert Path('out/vis', image['file_name']).stat().st_size > 500


def test_predictions_on_a_video(demo_data, demo_trained, tmp_path, capsys):
    video = cv2.VideoWriter(str(tmp_path / 'v.mp4'), cv2.VideoWriter.fourcc(*'mp4v'), 5, (64, 64))
    for path in sorted((demo_data / 'images' / 'val').iterdir()):
        video.write(cv2.imread(str(path)))
    video.release()
    arguments = [CONFIG, str(demo_trained / 'epoch_1.pth'), str(tmp_path / 'v.mp4'), '--out', str(tmp_path / 'out')]
    tool('predict')(arguments)
    images = json.loads((tmp_path / 'out' / 'detections.json').read_text())['images']
    assert [image['file_name'] for image in images] == ['v/000000', 'v/000001', 'v/000002']
    drawn = cv2.VideoCapture(str(tmp_path / 'out' / 'detections.mp4'))
    assert drawn.get(cv2.CAP_PROP_FRAME_COUNT) == 3
    video = cv2.VideoWriter(str(tmp_path / 'cut.avi'), cv2.VideoWriter.fourcc(*'MJPG'), 5, (64, 64))
    for _ in range(20):
        video.write(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    video.release()
    os.truncate(tmp_path / 'cut.avi', (tmp_path / 'cut.avi').stat().st_size // 4)
    tool('predict')([*arguments[:2], str(tmp_path / 'cut.avi'), *arguments[3:], '--score-thr', '0.01'])
    printed = capsys.readouterr().out
    assert re.search(r'the file claims 20 frames, and \d were decoded: it may be trimmed or damaged', printed)
    assert 'The config drops scores below 0.05; --cfg-options sets the score_thr' in printed


def test_nothing_of_a_url_is_written_outside(model_file, images, tmp_path, capfd):
    out = tmp_path / 'deep' / 'a' / 'out'
    with serve(images) as address:
        main([str(model_file), f'{address}/../../../../a.png', '--out', str(out), '--save-crops', '--save-txt'])
    host = address.rpartition('/')[2]
    (image,) = json.loads((out / 'detections.json').read_text(encoding='utf-8'))['images']
    assert image['file_name'] == f'{host}/a.png'
    written = {path.relative_to(out) for path in (tmp_path / 'deep').rglob('*') if path.is_file()}
    assert {Path('vis', host, 'a.png'), Path('labels', host, 'a.txt')} <= written
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == []


def test_the_program_defers_imports_and_the_function_does_not(monkeypatch):
    monkeypatch.setattr(fast_imports, 'defers', False)
    with pytest.raises(UserError):
        predict('none', 'none.jpg')
    assert not fast_imports.defers
    with pytest.raises(SystemExit):
        main(['none', 'none.jpg'])
    assert fast_imports.defers
