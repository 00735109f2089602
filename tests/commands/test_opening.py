"""What commands do with the names and files of detectors."""

import pytest

from tokennorm.commands.opening import mebibytes_of


@pytest.mark.parametrize(('name', 'expected'), [('d.onnx', 2), ('d.xml', 1.25)])
def test_the_size_of_openvino_is_that_of_its_two_files(tmp_path, name, expected):
    for suffix, size in (('.onnx', 2**21), ('.xml', 2**18), ('.bin', 2**20)):
        (tmp_path / f'd{suffix}').write_bytes(bytes(size))
    assert mebibytes_of(tmp_path / name) == expected
