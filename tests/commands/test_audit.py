"""`tokennorm audit`: any split, folds that judge what they have not seen, a repeated call, and wrong arguments."""

import json
import shutil
from pathlib import Path

import pytest

import tokennorm
from tests.helpers.cases import slow
from tests.helpers.commands import tool
from tokennorm.base.messages import UserError
from tokennorm.commands.audit import _claim


def report_of(folder):
    return json.loads((folder / 'report.json').read_text())


@pytest.mark.parametrize('split', ['train', slow('val')])
def test_test_evaluates_any_split(demo_data, demo_trained, tmp_path, split):
    """Of --data, and of the data in the config: the same images and values, as in the split's own file."""
    of_data = tokennorm.test(demo_trained, data=demo_data, split=split, out=tmp_path / 'data', report=True)
    of_config = tokennorm.test(demo_trained, split=split, out=tmp_path / 'config', report=True)
    content = json.loads((demo_data / 'annotations' / f'{split}.json').read_text())
    for found in (of_data, of_config):
        report = report_of(found.report.parent)
        assert report['data']['images'] == len(content['images'])
        assert report['data']['objects'] == len(content['annotations'])
        assert report['results']['bbox']['summary']['mAP'] == pytest.approx(found.metrics['coco/bbox_mAP'], abs=6e-4)
        assert {one['file'] for one in report['suspects']} <= {one['file_name'] for one in content['images']}
    assert of_data.metrics == of_config.metrics


def test_audit_writes_the_suspects_of_train(demo_data, demo_trained, tmp_path, capsys):
    found = tokennorm.audit(demo_trained, data=demo_data, out=tmp_path / 'suspects')
    report, content = (
        json.loads((tmp_path / 'suspects' / f'{name}.json').read_text()) for name in ('report', 'suspects')
    )
    assert found.suspects == report['suspects']
    assert report['data']['images'] == 4
    assert found.images == len(content['images']) == len({one['file'] for one in found.suspects})
    assert sum(found.as_dict()['suspects'].values()) == len(found.suspects)
    assert '--folds 3' in str(found)
    assert f'with AP {100 * report["results"]["bbox"]["summary"]["mAP"]:.1f} here' in str(found)
    assert (tmp_path / 'suspects' / 'report.html').is_file()


@pytest.mark.parametrize(
    ('options', 'text'),
    [
        (dict(folds=1), 'folds 1 with split train: expected 2 or more'),
        (dict(folds=3, split='val'), 'folds 3 with split val'),
        (dict(folds=0), 'folds 0 must be an integer of at least 1'),
        (dict(split='tests'), "split 'tests': expected train, val, test"),
        (dict(most=0), 'most 0 must be'),
        (dict(data='nowhere'), 'nowhere not found'),
    ],
)
def test_wrong_arguments(demo_data, demo_trained, tmp_path, options, text):
    with pytest.raises(UserError, match=text):
        tokennorm.audit(demo_trained, **dict(data=demo_data, out=tmp_path / 'suspects') | options)
    assert not (tmp_path / 'suspects' / 'folds').exists()


def test_the_folder_of_the_data_or_of_a_run_is_not_written_to(demo_data, demo_trained):
    with pytest.raises(UserError, match='is the folder of the data, or named as'):
        tokennorm.audit(demo_trained, data=demo_data, out=demo_data / 'images' / '..')
    for folder in ('images', 'annotations', 'train', 'images/Val/suspects'):
        with pytest.raises(UserError, match=r'named as one of its splits|no earlier audit wrote'):
            tokennorm.audit(demo_trained, data=demo_data, out=demo_data / folder)
    assert not (demo_data / 'train').exists()
    before = {path: path.stat().st_mtime_ns for path in demo_trained.rglob('*')}
    with pytest.raises(UserError, match='has files that no earlier audit wrote; choose an empty folder'):
        tokennorm.audit(demo_trained, data=demo_data, folds=2, out=demo_trained)
    assert {path: path.stat().st_mtime_ns for path in demo_trained.rglob('*')} == before


def test_folders_of_earlier_audits_are_written_to_again(tmp_path):
    """Also one of an interrupted call, and one with a file of the system."""
    out, data = tmp_path / 'suspects', tmp_path / 'data'
    data.mkdir()
    out.mkdir()
    (out / '.DS_Store').touch()
    _claim(out, data)
    assert json.loads((out / 'suspects.json').read_text())['images'] == []
    for name in ('suspects.jpg', 'report.json'):
        (out / name).touch()
    (out / 'suspects.json').write_text('of the first call')
    _claim(out, data)
    assert (out / 'suspects.json').read_text() == 'of the first call'
    _claim(data / 'suspects', data)
    (out / '1.png').touch()
    with pytest.raises(UserError, match='has files that no earlier audit wrote'):
        _claim(out, data)


@pytest.mark.slow
def test_folds_judge_images_that_they_have_not_seen(demo_data, demo_trained, tmp_path, capsys, monkeypatch):
    """By the run's config. A repeated call trains nothing anew; one that was interrupted trains the rest."""
    out, data = tmp_path / 'suspects', shutil.copytree(demo_data, tmp_path / 'data')
    arguments = [str(demo_trained), '--data', str(data), '--folds', '2', '--out', str(out)]
    tool('audit')(arguments)
    printed = capsys.readouterr().out
    assert '2 detectors are trained, each without one of 2 parts of 4 images: about as long as the run' in printed
    truth = json.loads((data / 'annotations' / 'train.json').read_text())
    seen, judged = [], []
    for number in ('1', '2'):
        train, val = (
            json.loads((out / 'folds' / number / 'data' / f'{name}.json').read_text()) for name in ('train', 'val')
        )
        seen.append({Path(one['file_name']).name for one in train['images']})
        judged.append({Path(one['file_name']).name for one in val['images']})
        assert report_of(out / 'folds' / number / 'run')['data']['images'] == 2
        (config,) = (out / 'folds' / number / 'run').glob('*.py')
        assert 'max_epochs=1' in config.read_text()
    assert seen[0].isdisjoint(judged[0])
    assert seen[1].isdisjoint(judged[1])
    assert judged[0] | judged[1] == {Path(one['file_name']).name for one in truth['images']}
    report = report_of(out)
    assert (report['data']['images'], report['data']['objects']) == (4, len(truth['annotations']))
    detections = json.loads((out / 'report.bbox.json').read_text())
    parts = [json.loads((out / 'folds' / number / 'run' / 'report.bbox.json').read_text()) for number in ('1', '2')]
    assert detections == parts[0] + parts[1]
    assert {one['image_id'] for one in detections} <= {one['id'] for one in truth['images']}

    for name in ('report.json', 'report.html'):  # as where it was killed while they were written
        (out / 'folds' / '2' / 'run' / name).unlink()
    times = {path: path.stat().st_mtime_ns for path in (out / 'folds' / '1').rglob('*')}
    tool('audit')(arguments)
    assert 'Detector 2 of 2' in (printed := capsys.readouterr().out)
    assert 'Detector 1 of 2' not in printed
    assert {path: path.stat().st_mtime_ns for path in (out / 'folds' / '1').rglob('*')} == times
    assert report_of(out)['suspects'] == report['suspects']

    truth['annotations'].pop()
    (data / 'annotations' / 'train.json').write_text(json.dumps(truth))
    with pytest.raises(SystemExit, match='has detectors of other annotations'):
        tool('audit')(arguments)
