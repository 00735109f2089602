"""What is changed in mmengine and mmdet."""

import json
import re

import numpy as np
import pytest
from mmdet.models import SSDHead
from mmengine.fileio import dump, load
from mmengine.visualization import LocalVisBackend

from tokennorm.base.files import as_json
from tokennorm.registry import compat
from tokennorm.registry.compat import make_mmengine_write_json, make_ssd_predict


@pytest.fixture(autouse=True)
def installed():
    make_mmengine_write_json(as_json)


def strict(text):
    def refuse(word):
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


def test_all_changes_are_listed():
    changes = {name for name in vars(compat) if name.startswith('make_')}
    assert changes == set(re.findall('^- `(.*?)`', compat.__doc__, re.MULTILINE))


def test_ssd_predicts(monkeypatch):
    monkeypatch.setattr(SSDHead, 'loss_cls', 1, raising=False)
    make_ssd_predict()
    assert SSDHead.loss_cls is None


def test_json_files_of_mmengine_have_no_nan(tmp_path):
    value = {'a': float('nan'), 'b': [np.float32(2), float('inf')], 'c': np.arange(2), 'd': {1}, 'e': 'größe'}
    expected = {'a': None, 'b': [2.0, None], 'c': [0, 1], 'd': [1], 'e': 'größe'}
    dump(value, tmp_path / 'a.json')
    assert strict((tmp_path / 'a.json').read_text(encoding='utf-8')) == expected
    assert load(tmp_path / 'a.json') == expected
    assert strict(dump(value, file_format='json', indent=2)) == expected


def test_numbers_of_numpy_that_are_not_finite_are_null(tmp_path):
    value = {'a': np.float32('nan'), 'b': np.array([1.0, np.inf]), 'c': [np.float64('nan')], 'd': {float('nan')}}
    dump(value, tmp_path / 'a.json')
    text = (tmp_path / 'a.json').read_text(encoding='utf-8')
    assert strict(text) == {'a': None, 'b': [1.0, None], 'c': [None], 'd': [None]}


def test_scalars_have_no_nan(tmp_path):
    backend = LocalVisBackend(str(tmp_path))
    backend.add_scalars({'loss': float('nan'), 'acc': 1.0}, step=2)
    backend.add_scalar('lr', float('inf'), step=3)
    lines = (tmp_path / 'scalars.json').read_text(encoding='utf-8').splitlines()
    assert list(map(strict, lines)) == [{'loss': None, 'acc': 1.0, 'step': 2}, {'lr': None, 'step': 3}]
