"""Mistakes in arguments end a command at once: before torch is imported, and before the data is read."""

import subprocess
import sys

CONFIG = 'retinanet_pvt-mini-dtn_fpn_bccd'


def test_the_commands_find_mistakes_before_they_import_torch():
    code = """
import sys
from importlib import import_module
for name, *words in (
    ['train', {config!r}, '--epochs', '0'],
    ['train', {config!r}, '--data', 'no_folder'],
    ['train', 'retinanet_pvt-mini-dnt_fpn_bccd'],
    ['test', 'none', 'none.pth'],
    ['predict', 'none', 'none.pth', 'image.jpg'],
    ['export', 'none', 'none.pth', 'out.onnx'],
    ['check', 'no_folder'],
    ['split', 'no_folder'],
):
    try:
        import_module(f'tokennorm.cli.{{name}}').main(words)
    except SystemExit as ended:
        assert str(ended.code).startswith('error: '), ended.code
        assert 'torch' not in sys.modules, name
    else:
        raise AssertionError(name)
"""
    subprocess.run([sys.executable, '-c', code.format(config=CONFIG)], check=True)
