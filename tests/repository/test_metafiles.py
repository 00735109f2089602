"""The metafiles and docs/configs.md are what tools/write_metafiles.py makes of configs/results.yml."""

import re
import runpy
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / 'tools' / 'write_metafiles.py'))
FOLDERS = TOOL['COLLECTIONS']


@cache
def models():
    index = yaml.safe_load((ROOT / 'model-index.yml').read_text())
    return [model for path in index['Import'] for model in yaml.safe_load((ROOT / path).read_text())['Models']]


def test_committed_files_equal_generated_ones():
    results = TOOL['read_results']()
    for path, text in TOOL['generated'](results).items():
        assert path.read_text() == text, f'{path.relative_to(ROOT)}: run tools/write_metafiles.py'
    assert TOOL['results_text'](results) == (ROOT / 'configs' / 'results.yml').read_text()


def test_the_model_zoo_links_every_config_once():
    text = (ROOT / 'docs' / 'configs.md').read_text()
    linked = sorted(re.findall(r'\]\(\.\./(configs/[^)]*\.py)\)', text))
    files = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob('configs/[!_]*/*.py'))
    assert linked == files
    assert f'\n{len(files)} configs;' in text


def test_the_metafiles_have_every_config():
    files = {str(path.relative_to(ROOT)) for folder in FOLDERS for path in ROOT.glob(f'configs/{folder}/*.py')}
    assert {model['Config'] for model in models()} == files
    assert all(Path(model['Config']).stem == model['Name'] for model in models())
