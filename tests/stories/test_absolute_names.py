"""COCO files whose `file_name` is an absolute path give what the same files give with relative names."""

import json
import os
import shutil
from functools import partial

import numpy as np
import pytest

import tokennorm
from tests.helpers.coco_files import edit
from tests.helpers.commands import as_dict
from tests.helpers.data_folders import objects
from tests.helpers.detections import perfect
from tests.helpers.judging import codes, finding, judge
from tests.helpers.trained import CONFIG, few
from tokennorm.report.page import write_report

BOTH, VAL = ('train', 'val'), ('val',)


def without_size(content):
    """The sizes are read from the files, and the content goes to the cache."""
    for image in content['images']:
        del image['width']


def with_unlisted_image(content):
    content['images'].pop()


CHANGES = {'as it is': None, 'without sizes': without_size, 'an image is unlisted': with_unlisted_image}


@pytest.fixture
def pair(demo_data, tmp_path, cache):
    """Two folders `data` with the same images: with names relative to the folder of the images, and absolute ones."""

    def make(splits=BOTH, change=None):
        folders = [tmp_path / kind / 'data' for kind in ('relative', 'absolute')]
        for folder in folders:
            shutil.copytree(demo_data, folder)
            for split in BOTH:
                edit(folder, split, change or (lambda content: None))
        for split in splits:
            edit(folders[1], split, partial(name_absolutely, folders[1] / 'images' / split))
        return folders

    return make


def name_absolutely(folder, content):
    for image in content['images']:
        image['file_name'] = str(folder / image['file_name'])
        assert os.path.isfile(image['file_name'])


def found_in(folder):
    """What the rules find, by code, place and items without folders; the objects of each split."""
    splits, found = judge(folder)
    made = [(one.code, one.where, [os.path.basename(item) for item in one.items]) for one in found]
    return made, {name: objects(split) for name, split in splits.items()}


@pytest.mark.parametrize('change', CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize('splits', [BOTH, VAL], ids=['train and val', 'val'])
def test_readers_rules_and_cache(pair, splits, change, monkeypatch):
    relative, absolute = pair(splits, change)
    expected = found_in(relative)
    assert found_in(absolute) == expected
    monkeypatch.chdir(absolute.parent)
    assert found_in('data') == expected


@pytest.mark.parametrize('splits', [BOTH, VAL], ids=['train and val', 'val'])
def test_check_and_its_sheets(pair, splits, tmp_path):
    results = [tokennorm.check(folder, out=tmp_path / 'out' / folder.parent.name) for folder in pair(splits)]
    assert results[0].ok
    assert list(map(str, results[1].findings)) == list(map(str, results[0].findings))
    assert results[1].lines[1] == results[0].lines[1]  # the table
    assert set(results[1].sheets) == {'train', 'val'}


def test_split(pair):
    parts = []
    for folder in pair():
        (folder / 'annotations' / 'train.json').rename(folder / 'all.json')
        shutil.rmtree(folder / 'annotations')
        tokennorm.split(folder / 'all.json', val=0.25)
        (folder / 'all.json').unlink()
        splits, found = judge(folder)
        assert not [one for one in found if one.severity == 'error']
        parts.append({name: objects(split) for name, split in splits.items()})
    assert parts[1] == parts[0]
    assert [len(parts[0][name]) for name in ('train', 'val')] == [3, 1]


def test_a_file_that_is_named_in_both_ways_is_one(pair, monkeypatch):
    _, folder = pair()

    def name_again(content):
        first = content['images'][0]
        content['images'].append(first | dict(id=99, file_name='./' + os.path.basename(first['file_name'])))

    edit(folder, 'train', name_again)
    monkeypatch.chdir(folder.parent)
    _, found = judge('data')
    assert [len(finding(found, 'repeated-image').items), 'unreadable-image' in codes(found)] == [1, False]


def test_report(pair, tmp_path):
    reports = []
    for folder in pair():
        ann_file = folder / 'annotations' / 'val.json'
        found = dict(bbox=perfect(json.loads(ann_file.read_text())))
        page = tmp_path / folder.parent.name / 'report.html'
        numbers = write_report(page, ann_file, found, image_dir=folder / 'images' / 'val')
        reports.append((numbers['title'], numbers['results'], page.read_text().count('data:image/jpeg')))
    assert reports[1] == reports[0]
    assert reports[0][2] > 0


@pytest.mark.slow
@pytest.mark.parametrize('splits', [BOTH, VAL], ids=['train and val', 'val'])
def test_training_and_what_reads_its_data(pair, splits, tmp_path):
    """Training, test with a report and drawings, predict, export with --verify and benchmark, and compare."""
    results, runs = [], []
    for folder in pair(splits):
        out = tmp_path / 'out' / folder.parent.name
        runs.append(out / 'run')
        trained = tokennorm.train(CONFIG, data=folder, out=runs[-1], epochs=1, seed=0, cfg_options=as_dict(few()))
        tested = tokennorm.test(runs[-1], data=folder, report=True, out=out / 'test')
        predicted = tokennorm.predict(runs[-1], folder / 'images' / 'val', out=out / 'predicted', device='cpu')
        exported = tokennorm.Detector(runs[-1]).export(out / 'model.onnx', verify=folder)
        results.append((trained.metrics, tested.metrics, predicted.detections, exported.exported_ap))
    assert results[1][1:3] == results[0][1:3]
    np.testing.assert_allclose(list(results[1][3].values()), list(results[0][3].values()))
    assert tokennorm.compare(*runs, out=tmp_path / 'page.html').same_data
