"""The page about two training runs, and the command that writes it."""

import json
import re

import numpy as np
import pytest
from mmengine.config import Config

from tests.helpers.detections import make_truth, noisy, perfect
from tests.helpers.report import CONFIG, Balance
from tests.helpers.scalars import write_scalars
from tokennorm.cli.compare import main
from tokennorm.evaluation.results import CocoResults
from tokennorm.messages import UserError
from tokennorm.report.compare import compare, config_changes, read_run
from tokennorm.report.page import write_report


def make_run(folder, truth, detections, cfg=None, best=0.5, image_ids=None):
    folder.mkdir()
    write_scalars(
        folder, '20260101_000000', [dict(loss=2.0, lr=0.1, iter=5, step=5), {'coco/bbox_mAP': best, 'step': 1}]
    )
    (folder.parent / 'val.json').write_text(json.dumps(truth))
    data, weights = dict(bbox=detections), f'/runs/{folder.name}.pth'
    given = dict(work_dir=folder, cfg=cfg, checkpoint=weights, image_ids=image_ids)
    write_report(folder / 'report.html', folder.parent / 'val.json', data, **given)
    return folder


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp('compare')
    truth = make_truth()
    first, second = Config.fromfile(CONFIG), Config.fromfile(CONFIG)
    second.optim_wrapper.optimizer.lr = 0.125
    better = perfect(truth).table
    better[::10, 6] = 2  # every tenth detection is a cat
    return (
        make_run(folder / 'layer_norm', truth, noisy(truth), first),
        make_run(folder / 'dtn', truth, CocoResults(better), second),
    )


def test_the_page_has_the_differences(runs, tmp_path, capsys):
    main([str(run) for run in runs] + ['--out', str(tmp_path / 'page.html')])
    first, second = (json.loads((run / 'report.json').read_text())['results']['bbox'] for run in runs)
    points = 100 * (second['summary']['mAP'] - first['summary']['mAP'])
    assert points > 10
    printed = capsys.readouterr().out
    low, high = map(float, re.search(r'interval \+([\d.]+) to \+([\d.]+)\)', printed).groups())
    aps = [100 * one['summary']['mAP'] for one in (first, second)]
    line = f'bbox AP of dtn: {aps[1]:.1f}, higher than {aps[0]:.1f} of layer_norm (+{points:.1f}, '
    assert printed.startswith(line)
    assert low < points < high < points + 20
    page = Balance()
    page.feed((tmp_path / 'page.html').read_text())
    assert page.open == []
    rows = [row for row in page.rows if len(row) == 5]
    for entry, other in zip(first['classes'], second['classes'], strict=True):
        aps = [100 * entry['ap'], 100 * other['ap']]
        assert [entry['name'], str(entry['objects']), *(f'{ap:.1f}' for ap in aps), f'{aps[1] - aps[0]:+.1f}'] in rows
    text = (tmp_path / 'page.html').read_text()
    for part in ('dtn compared with layer_norm', 'lr=0.125', 'Training loss', 'AP on the validation set'):
        assert part in text, part
    assert 'different annotations' not in text


def test_a_comparison_replaces_no_other(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second = map(str, runs)
    main([first, second])
    before = (tmp_path / 'compare.html').read_bytes()
    main([second, first])
    assert (tmp_path / 'compare.html').read_bytes() == before
    assert 'bbox AP of layer_norm: ' in (printed := capsys.readouterr().out)
    assert ', lower than ' in printed
    assert 'Weights: layer_norm layer_norm.pth, dtn dtn.pth\n' in printed
    assert 'layer_norm compared with dtn' in (tmp_path / 'compare-2.html').read_text()


def test_two_times_the_same_run_differs_by_nothing(runs, tmp_path):
    run = read_run(runs[0])
    (result,) = compare(run, run, tmp_path / 'a.html', resamples=20).values()
    assert (result.value, result.low, result.high) == (0, 0, 0)
    assert config_changes(run, run) == []
    assert 'layer_norm (1)' in (tmp_path / 'a.html').read_text()


def test_other_annotations_give_a_warning_and_no_interval(runs, tmp_path):
    truth = make_truth(num_images=5)
    (tmp_path / 'other').mkdir()
    other = make_run(tmp_path / 'other' / 'c', truth, noisy(truth))
    (result,) = compare(read_run(runs[0]), read_run(other), tmp_path / 'a.html').values()
    assert result.low is None
    assert np.isfinite(result.value)
    assert 'different annotations' in (tmp_path / 'a.html').read_text()


def test_runs_on_a_part_of_the_images_are_compared_on_it(tmp_path):
    truth, part = make_truth(), list(range(1, 11))
    seen = perfect(dict(truth, annotations=[a for a in truth['annotations'] if a['image_id'] in part]))
    few, same, every = (
        read_run(make_run(tmp_path / name, truth, seen, image_ids=ids))
        for name, ids in dict(few=part, same=part, every=[i['id'] for i in truth['images']]).items()
    )
    aps = [run.numbers['results']['bbox']['summary']['mAP'] for run in (few, same, every)]
    assert aps[:2] == [1, 1]
    assert aps[2] < 0.5
    assert (few.numbers['data']['images'], every.numbers['image_ids']) == (10, None)
    assert few.numbers['data']['objects'] == sum(a['image_id'] in part for a in truth['annotations'])
    (result,) = compare(few, same, tmp_path / 'a.html', resamples=20).values()
    assert (result.value, result.low, result.high) == (0, 0, 0)
    (result,) = compare(few, every, tmp_path / 'b.html').values()
    assert result.low is None
    assert ', 10 images) and ' in (tmp_path / 'b.html').read_text()


def test_changed_annotations_and_damaged_reports(runs, tmp_path):
    """Annotations that were changed after the report give no interval; a report without its numbers is named."""
    run = read_run(runs[0])
    path = tmp_path / 'val.json'
    path.write_text((runs[0].parent / 'val.json').read_text() + ' ')
    run.numbers['data']['path'] = str(path)
    (result,) = compare(run, run, tmp_path / 'a.html').values()
    assert (result.value, result.low) == (0, None)
    for text in ('{"title"', '[]', '{"results": {}}'):
        (tmp_path / 'report.json').write_text(text)
        with pytest.raises(UserError, match=r'report.json is not the report of this version \(\w+: .* --report`'):
            read_run(tmp_path)
