"""`tokennorm benchmark`: a row for PyTorch and for each file."""

import pytest

from experiments.shapes import CLASSES
from tests.helpers.commands import tool
from tests.helpers.handmade_onnx import write_handmade


def test_rows_are_of_the_same_images(demo_data, demo_trained, tmp_path, capsys):
    path = write_handmade(tmp_path / 'd.onnx', classes=CLASSES, category_ids=[1, 2, 3, 4])
    tool('benchmark')([str(demo_trained), str(path), '--data', str(demo_data)])
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith('3 val images of ') for line in lines)
    heads, torch_row, file_row = (line.split() for line in lines[-3:])
    assert heads == ['bbox', 'AP', 'ms', 'per', 'image', 'MiB']
    assert (torch_row[0], file_row[0], file_row[1]) == ('PyTorch', str(path), '0.0')  # it finds the same everywhere
    assert float(torch_row[3]) > float(file_row[3]) == pytest.approx(path.stat().st_size / 2**20, abs=0.05)


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('d.onnx', 'error: .*d.onnx has other classes than .*pth; name files of the'),
        ('d.pt', 'error: .*d.pt must be an .onnx or .xml file'),
    ],
)
def test_files_of_other_detectors_are_refused(name, message, demo_data, demo_trained, tmp_path):
    path = write_handmade(tmp_path / name)
    with pytest.raises(SystemExit, match=message):
        tool('benchmark')([str(demo_trained), str(path), '--data', str(demo_data)])
