"""`tokennorm export --verify` and `tokennorm benchmark` with a trained detector."""

import re

import pytest

from tests.helpers.commands import tool


@pytest.mark.slow
def test_a_written_file_has_the_ap_of_pytorch(demo_data, demo_trained, tmp_path, capsys):
    """With images of 64 pixels, which need no other padding in the file than in PyTorch."""
    few = ['--cfg-options', 'model.test_cfg.score_thr=0.0', 'model.test_cfg.max_per_img=300']
    tool('export')([str(demo_trained), str(tmp_path / 'd.onnx'), '--verify', str(demo_data), *few])
    exported, pytorch = re.search(
        r'exported ([\d.]+), PyTorch ([\d.]+): they differ by less', capsys.readouterr().out
    ).groups()
    assert float(exported) == pytest.approx(float(pytorch), abs=0.01)
    assert float(pytorch) > 0
    tool('benchmark')([str(demo_trained), str(tmp_path / 'd.onnx'), '--data', str(demo_data), *few])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-3:]]
    assert rows[0] == ['bbox', 'AP', 'ms', 'per', 'image', 'MiB']
    assert rows[1][:2] == ['PyTorch', f'{float(pytorch):.1f}']
    assert rows[2][0].endswith('d.onnx')
    assert all(float(value) > 0 for row in rows[1:] for value in row[2:])
