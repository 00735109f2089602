"""Imports: the layers of the package, and what importing a part of it loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Imports one part after another, and prints which third-party packages each one adds.
PROBE = """
import json, sys
added, seen = {}, set(sys.stdlib_module_names)
parts = ['torch einops', 'tokennorm.norms', 'mmengine.hooks mmengine.model']
for part in [*parts, 'tokennorm.backbones', 'tokennorm.engine.hooks']:
    for module in part.split():
        __import__(module)
    names = {name.split('.')[0] for name in sys.modules if not name.startswith('_')}
    added[part] = sorted(names - seen)
    seen |= names
print(json.dumps(added))
"""


@pytest.fixture(scope='module')
def added():
    done = subprocess.run([sys.executable, '-c', PROBE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_normalizers_need_torch_and_einops_only(added):
    assert set(added['tokennorm.norms']) == {'tokennorm'}
    assert 'triton' not in added['torch einops']


def test_backbones_need_mmengine_too(added):
    assert added['tokennorm.backbones'] == []


def test_hooks_load_nothing_but_mmengine(added):
    assert not {'mmdet', 'mmcv', 'pycocotools', 'timm'} & set(added['tokennorm.engine.hooks'])


@pytest.mark.slow
def test_layers():
    """The contracts of import-linter in pyproject.toml, which `make lint` and with it `make test` check as well."""
    lint = Path(sys.executable).with_name('lint-imports')
    done = subprocess.run([lint, '--no-cache'], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
