"""Score thresholds per class: written by the report, read from a number, a file, or next to a checkpoint."""

import json

import numpy as np
import pytest

from tests.helpers.handmade_onnx import write_handmade
from tokennorm.cli.predict import main
from tokennorm.inference.runtime import BaseDetector, ExportedDetector, ThresholdError, thresholds_of


class TwoClasses(BaseDetector):
    """A detector of disks and stars that finds nothing."""

    classes = ('disk', 'star')
    recommended = None


def write(path, **thresholds):
    path.write_text(json.dumps(dict(classes=thresholds)))
    return path


def test_numbers_files_and_recommended_ones(tmp_path):
    detector, path = TwoClasses(), write(tmp_path / 'thresholds.json', star=0.5, disk=0.25)
    for chosen, expected in ((path, [0.25, 0.5]), (str(path), [0.25, 0.5]), ('0.4', [0.4] * 2), (0.4, [0.4] * 2)):
        assert detector.thresholds(chosen).tolist() == expected
    with pytest.raises(ThresholdError, match=r'score thresholds best: there are none; training writes thresholds.json'):
        detector.thresholds('best')
    detector.recommended = [0.1, 0.7]
    assert detector.thresholds('best').tolist() == [0.1, 0.7]
    with pytest.raises(ThresholdError, match=r'none.json not found; give best, a number or a thresholds.json'):
        detector.thresholds(tmp_path / 'none.json')
    with pytest.raises(ThresholdError, match=r"has no score threshold of each class \(KeyError: 'star'"):
        detector.thresholds(write(tmp_path / 'other.json', disk=0.5))
    for value in ('NaN', '7', '-3', '1e400', '"0.5"', 'true'):
        path.write_text(f'{{"classes": {{"disk": {value}, "star": 0.1}}}}')
        with pytest.raises(ThresholdError, match='is not a number from 0 to 1'):
            detector.thresholds(path)
    for chosen in ([0.1, 0.2, 0.3], dict(disk=0.1, star=0.2), 'half', None):
        with pytest.raises(
            ThresholdError, match=r'must be best, a number, a file, or 2 numbers|not found|must be from 0'
        ):
            detector.thresholds(chosen)
    for number in ('nan', '-0.1', 1.5):
        with pytest.raises(ThresholdError, match=f'score threshold {number} must be from 0 to 1'):
            detector.thresholds(number)


def test_exported_file_has_thresholds_in_its_metadata(tmp_path):
    """Its one detection is a square with a score of 0.75."""
    image = [np.zeros((64, 96, 3), np.uint8)]
    plain = ExportedDetector(write_handmade(tmp_path / 'plain.onnx'))
    detector = ExportedDetector(write_handmade(tmp_path / 'model.onnx', thresholds=[0.9, 0.75]))
    assert len(detector(image, 'best')[0].scores) == len(plain(image)[0].scores) == 1
    assert len(plain(image, [0.1, 0.8])[0].scores) == len(plain(image, 0.8)[0].scores) == 0
    with pytest.raises(ThresholdError, match='thresholds best: there are none'):
        plain(image, 'best')


@pytest.mark.parametrize(('chosen', 'count'), [('best', 1), ('0.8', 0), ('thresholds.json', 0)])
def test_predict_with_thresholds_filters_the_json(chosen, count, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    write_handmade(tmp_path / 'model.onnx', thresholds=[0.9, 0.75])
    write(tmp_path / 'thresholds.json', round=0.1, square=0.8)
    Image.new('RGB', (96, 64)).save('a.png')
    main(['model.onnx', 'a.png', '--out', 'out', '--thresholds', chosen])
    assert len(json.loads((tmp_path / 'out' / 'detections.json').read_text())['annotations']) == count


def test_thresholds_are_those_of_their_checkpoint(tmp_path):
    assert thresholds_of(tmp_path / 'a.pth') is None
    path = write(tmp_path / 'thresholds.json', star=0.5)
    assert thresholds_of(tmp_path / 'a.pth') == path
    path.write_text(json.dumps(dict(classes=dict(star=0.5), checkpoint='work_dirs/x/a.pth')))
    assert (thresholds_of(tmp_path / 'a.pth'), thresholds_of(tmp_path / 'b.pth')) == (path, None)
