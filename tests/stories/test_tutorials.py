"""The notebooks in docs/tutorials run from the first cell to the last one."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize('path', sorted(ROOT.glob('docs/tutorials/*.ipynb')), ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip('nbformat'), pytest.importorskip('nbclient')
    monkeypatch.setenv('PATH', f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}')
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=1800, resources=dict(metadata=dict(path=tmp_path))).execute()
    detections = notebook.cells[-1].outputs[-1]['data']['text/plain']
    assert detections.startswith('[(')  # the exported detector finds something
