"""The page about two training runs, and the command that writes it."""

import copy
import json
import re
from dataclasses import replace

import pytest
from mmengine.config import Config

from tests.helpers.detections import CLASSES, make_truth, noisy, perfect
from tests.helpers.plain import plain_figures
from tests.helpers.report import CONFIG, Balance
from tests.helpers.scalars import write_scalars
from tokennorm.base.messages import UserError
from tokennorm.cli.compare import main
from tokennorm.evaluation.results import CocoResults
from tokennorm.report.comparison import compare, config_changes, read_run, same_data
from tokennorm.report.page import content_fingerprint, format_difference, write_report

pytestmark = pytest.mark.usefixtures('plain_files')


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
    with plain_figures():
        return (
            make_run(folder / 'layer_norm', truth, noisy(truth), first),
            make_run(folder / 'dtn', truth, CocoResults(better), second),
        )


def test_the_page_has_the_differences(runs, tmp_path, capsys):
    main([str(run) for run in runs] + ['--out', str(tmp_path / 'page.html')])
    first, second = (json.loads((run / 'report.json').read_text())['results']['bbox'] for run in runs)
    printed = capsys.readouterr().out
    low, high = map(float, re.search(r'interval \+([\d.]+) to \+([\d.]+)\)', printed).groups())
    aps = [round(100 * one['summary']['mAP'], 1) for one in (first, second)]
    points = aps[1] - aps[0]
    assert points > 10
    line = f'bbox AP of dtn: {aps[1]:.1f}, higher than {aps[0]:.1f} of layer_norm (+{points:.1f}, '
    assert printed.startswith(line)
    assert low < points < high < points + 20
    page = Balance()
    page.feed((tmp_path / 'page.html').read_text())
    assert page.open == []
    rows = [row for row in page.rows if len(row) == 5]
    assert [row[0] for row in rows].count(CLASSES[2]) == 1
    for entry, other in zip(first['classes'], second['classes'], strict=True):
        aps = [round(100 * one['ap'], 1) for one in (entry, other)]
        assert [entry['name'], str(entry['objects']), *(f'{ap:.1f}' for ap in aps), f'{aps[1] - aps[0]:+.1f}'] in rows
    text = (tmp_path / 'page.html').read_text()
    for part in ('dtn compared with layer_norm', 'lr=0.125', 'Training loss', 'AP on the validation set'):
        assert part in text, part
    assert 'different annotations' not in text


@pytest.mark.parametrize(
    ('aps', 'printed'), [((0.0936, 0.0824), '-1.2'), ((0.08, 0.0804), '+0.0'), ((0.08049, 0.08051), '+0.1')]
)
def test_a_difference_is_that_of_the_printed_values(aps, printed):
    assert format_difference(*aps) == printed


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


@pytest.mark.parametrize(('out', 'page'), [('new/it', 'new/it/compare.html'), ('new/a.html', 'new/a.html')])
def test_the_output_is_a_folder_or_a_page(out, page, runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main([*map(str, runs), '--out', out])
    assert f'The comparison is in {page}\n' in capsys.readouterr().out
    assert 'dtn compared with layer_norm' in (tmp_path / page).read_text()


def test_the_report_of_a_run_is_not_replaced(runs):
    before = (runs[0] / 'report.html').read_bytes()
    with pytest.raises(SystemExit, match='is the report of a run'):
        main([*map(str, runs), '--out', str(runs[0] / 'report.html')])
    assert (runs[0] / 'report.html').read_bytes() == before


def test_without_objects_there_is_no_ap(tmp_path, capsys):
    truth = make_truth() | dict(annotations=[])
    runs = [str(make_run(tmp_path / name, truth, perfect(make_truth()))) for name in 'ab']
    main([*runs, '--out', str(tmp_path / 'page.html')])
    assert capsys.readouterr().out.startswith('bbox AP is not defined: there are no annotated objects\n')


def test_two_times_the_same_run_differs_by_nothing(runs, tmp_path):
    run = read_run(runs[0])
    (result,) = compare(run, run, tmp_path / 'a.html', resamples=20).values()
    assert result == (0, 0)
    assert config_changes(run, run) == []
    assert 'layer_norm (1)' in (tmp_path / 'a.html').read_text()


def test_other_annotations_give_a_warning_and_no_interval(runs, tmp_path):
    truth = make_truth(num_images=5)
    (tmp_path / 'other').mkdir()
    other = make_run(tmp_path / 'other' / 'c', truth, noisy(truth))
    (result,) = compare(read_run(runs[0]), read_run(other), tmp_path / 'a.html').values()
    assert result == (None, None)
    assert 'different annotations' in (tmp_path / 'a.html').read_text()


def renumbered(truth):
    """The same images and objects: other ids, another order, folders, and numbers that are written otherwise."""
    content = copy.deepcopy(truth)
    categories = {one['id']: 20 - one['id'] for one in content['categories']}
    for image in content['images']:
        image.update(id=100 - image['id'], file_name=f'/moved/val/{image["file_name"]}', width=float(image['width']))
    for one in content['annotations']:
        one.update(id=one['id'] + 7, image_id=100 - one['image_id'], category_id=categories[one['category_id']])
    for one in content['categories']:
        one['id'] = categories[one['id']]
    return {key: entries[::-1] for key, entries in content.items()}


def older(run):
    """As version 1.2 wrote it."""
    numbers = dict(run.numbers, data={key: one for key, one in run.numbers['data'].items() if key != 'content'})
    return replace(run, numbers=numbers)


def test_the_same_images_in_another_file_are_the_same_data(tmp_path):
    truth, other = make_truth(), renumbered(make_truth())
    ids = {one['id']: 20 - one['id'] for one in truth['categories']}
    moved = noisy(truth).table.copy()
    moved[:, 0] = 100 - moved[:, 0]
    moved[:, 6] = [ids[i] for i in moved[:, 6]]
    runs = []
    for name, content, found in (('a', truth, noisy(truth)), ('b', other, CocoResults(moved))):
        (tmp_path / name).mkdir()
        runs.append(read_run(make_run(tmp_path / name / 'run', content, found)))
    for pair in (runs, [older(runs[0]), runs[1]], list(map(older, runs))):
        assert same_data(*pair)
        (result,) = compare(*pair, tmp_path / 'a.html', resamples=20).values()
        assert result == pytest.approx((0, 0), abs=1e-9)
        assert 'different annotations' not in (tmp_path / 'a.html').read_text()

    file = tmp_path / 'b' / 'val.json'
    file.write_text(json.dumps(other, indent=2))  # after its run
    assert compare(*runs, tmp_path / 'a.html', resamples=20)['bbox'] != (None, None)
    file.unlink()
    assert same_data(*runs)
    assert compare(*runs, tmp_path / 'a.html')['bbox'] == (None, None)
    assert not same_data(runs[0], older(runs[1]))  # that it was the same cannot be known any more


@pytest.mark.parametrize(
    'change',
    [
        lambda c: c['images'][3].update(file_name='other.jpg'),
        lambda c: c['images'][3].update(width=399),
        lambda c: c['images'].pop(),
        lambda c: c['annotations'].pop(),
        lambda c: c['annotations'][0].update(bbox=[1, 2, 30, 40]),
        lambda c: c['annotations'][0].update(
            category_id=next(i for i in CLASSES if i != c['annotations'][0]['category_id'])
        ),
        lambda c: c['annotations'][0].update(iscrowd=1),
        lambda c: c['annotations'][0].update(segmentation=[[0, 0, 9, 0, 9, 9]]),
        lambda c: c['categories'][0].update(name='tiger'),
    ],
)
def test_other_images_objects_and_classes_are_other_data(change):
    content = make_truth()
    before = content_fingerprint(content)
    assert before == content_fingerprint(renumbered(content))
    change(content)
    assert content_fingerprint(content) != before


@pytest.mark.slow
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
    assert result == (0, 0)
    (result,) = compare(few, every, tmp_path / 'b.html').values()
    assert result == (None, None)
    assert ', 10 images) and ' in (tmp_path / 'b.html').read_text()


def test_changed_annotations_and_damaged_reports(runs, tmp_path):
    """Annotations that were changed after the report give no interval; a report without its numbers is named."""
    run = read_run(runs[0])
    path = tmp_path / 'val.json'
    path.write_text((runs[0].parent / 'val.json').read_text().replace('"area"', '"AREA"').replace('7.jpg', 'x.jpg'))
    run.numbers['data']['path'] = str(path)
    (result,) = compare(run, run, tmp_path / 'a.html').values()
    assert result == (None, None)
    for text in ('{"title"', '[]', '{"results": {}}'):
        (tmp_path / 'report.json').write_text(text)
        with pytest.raises(UserError, match=r'report.json is not the report of this version \(\w+: .* --report`'):
            read_run(tmp_path)
