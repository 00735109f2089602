"""Score thresholds per class: written by the report, read from a number, a file, or next to a checkpoint."""

import json

import numpy as np
import pytest

from tests.helpers.handmade_onnx import write_handmade
from tokennorm.cli.predict import main
from tokennorm.evaluation.thresholds import NAME, read_thresholds, write_thresholds
from tokennorm.inference.runtime import ExportedDetector, ModelFileError
from tokennorm.messages import UserError


def test_numbers_files_and_the_file_next_to_a_checkpoint(tmp_path):
    checkpoint = tmp_path / 'best.pth'
    write_thresholds(tmp_path, dict(disk=0.25, star=0.5), 'epoch 3')
    assert json.loads((tmp_path / NAME).read_text())['checkpoint'] == 'epoch 3'
    assert read_thresholds('best', checkpoint, ['star', 'disk']) == [0.5, 0.25]
    assert read_thresholds(str(tmp_path / NAME), 'elsewhere.pth', ['disk']) == [0.25]
    assert read_thresholds('0.4', checkpoint, ['a', 'b']) == read_thresholds(0.4, checkpoint, 'ab') == [0.4, 0.4]
    with pytest.raises(UserError, match=r"thresholds.json has no score threshold of each class \(KeyError: 'ring'"):
        read_thresholds('best', checkpoint, ['disk', 'ring'])
    with pytest.raises(UserError, match=r'none.json not found; a training run that is validated by COCO AP writes it'):
        read_thresholds(tmp_path / 'none.json', checkpoint, ['disk'])
    for value in ('NaN', '7', '-3', '1e400', '"0.5"', 'true'):
        (tmp_path / 'own.json').write_text(f'{{"classes": {{"disk": {value}}}}}')
        with pytest.raises(UserError, match='is not a number from 0 to 1'):
            read_thresholds(tmp_path / 'own.json', checkpoint, ['disk'])
    for number in ('nan', '-0.1', 1.5):
        with pytest.raises(UserError, match=f'score threshold {number} must be from 0 to 1'):
            read_thresholds(number, checkpoint, ['disk'])


def test_exported_file_has_thresholds_in_its_metadata(tmp_path):
    """Its one detection is a square with a score of 0.75."""
    image = [np.zeros((64, 96, 3), np.uint8)]
    plain = ExportedDetector(write_handmade(tmp_path / 'plain.onnx'))
    detector = ExportedDetector(write_handmade(tmp_path / 'model.onnx', thresholds=[0.9, 0.75]))
    assert len(detector(image, 'best')[0].scores) == len(plain(image)[0].scores) == 1
    assert len(plain(image, [0.1, 0.8])[0].scores) == len(plain(image, 0.8)[0].scores) == 0
    with pytest.raises(ModelFileError, match='thresholds best: the file has none'):
        plain(image, 'best')


@pytest.mark.parametrize(('chosen', 'count'), [('best', 1), ('0.8', 0), (NAME, 0)])
def test_predict_with_thresholds_filters_the_json(chosen, count, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    write_handmade(tmp_path / 'model.onnx', thresholds=[0.9, 0.75])
    write_thresholds(tmp_path, dict(round=0.1, square=0.8), None)
    Image.new('RGB', (96, 64)).save('a.png')
    main(['model.onnx', 'a.png', '--out', 'out', '--thresholds', chosen])
    assert len(json.loads((tmp_path / 'out' / 'detections.json').read_text())['annotations']) == count
