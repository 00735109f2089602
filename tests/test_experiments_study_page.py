"""Tables of made-up results against numbers worked out by hand, and the published pages against their results."""

import json
import re
import shutil

import cv2
import pytest

from experiments.study.page import Pages
from experiments.study.plan import Run, load_study
from experiments.study.results import read_results, value_at
from experiments.study.run import DOCS, PLANS, write_pages
from experiments.study.scoring import pack
from experiments.study.training import fingerprint

# Per seed
AP = {'LN': (0.30, 0.32, 0.31), 'LN+DPN': (0.31, 0.35, 0.33), 'DTN': (0.30, 0.30, 0.30), 'DTN+DPN': (0.36, 0.37, 0.38)}


def record(run, metric, value, **more):
    """A run of four epochs that was validated at the second and the fourth."""
    return dict(
        arm=run.arm,
        seed=run.seed,
        finished=True,
        fingerprint=str(run),
        epochs=4,
        batch_size=8,
        optimizer=dict(type='AdamW', lr=1e-3),
        curve={'2': {metric: 0.9}, '4': {metric: value}},  # the best epoch is not the last
        seconds=90.0,
        cpu_seconds=60.0,
        machines=['a machine'],
        versions=dict(python='3.11', torch='2.11'),
        parameters=1234567,
        train_images=400,
        val_images=150,
    ) | dict(more)


def keep(folder, records):
    """Writes made-up records as kept results: a list of runs, and of the arguments of `record` after the run."""
    stages = {}
    for run, *arguments, more in records:
        stages.setdefault(run.stage, []).append(record(run, *arguments, **more))
    folder.mkdir(parents=True, exist_ok=True)
    for stage, content in stages.items():
        (folder / f'{stage}.json').write_text(json.dumps(content))


@pytest.fixture
def study(tmp_path):
    return load_study(DOCS.parents[1] / 'projects/experiments/study/configs/cpu.py', tmp_path / 'runs')


def metric(study, run):
    return study.stages[run.stage].metric


def pages_of(study, tmp_path, records):
    keep(tmp_path / 'results' / 'cpu', records)
    return Pages({'cpu': study}, tmp_path / 'results')


def row(lines, start):
    """Cells of the table row that begins so."""
    (line,) = [line for line in lines if line.startswith(f'| {start} |')]
    return [cell.strip() for cell in line.strip('|').split('|')]


def test_tables_are_those_worked_out_by_hand(study, tmp_path):
    scale = dict(pretrain=100, retinanet=1)
    records = [(run, metric(study, run), scale[run.stage] * AP[run.arm][run.seed], {}) for run in study.runs()]
    pages = pages_of(study, tmp_path, records)
    classifier, detector = pages.table('cpu/pretrain'), pages.table('cpu/retinanet')
    assert classifier[0].startswith('top-1 accuracy (%), 400 training and 150 test images, 4 epochs of batches of 8')
    assert row(detector, 'LN')[1:] == ['31.00 ± 1.00', '30.00', '32.00', '31.00', '1,234,567', '1.0', '1.00']
    assert row(classifier, 'LN')[1:5] == ['31.00 ± 1.00', '30.00', '32.00', '31.00']
    # t of 2 degrees of freedom is 4.303; the half width is 4.303 / sqrt(3) for a deviation of 1
    assert row(detector, 'LN+DPN - LN')[1:] == ['+2.00', '-0.48 to +4.48', '3 seeds', '+1.00, +3.00, +2.00']
    assert row(detector, 'DTN - LN')[1:] == ['-1.00', '-3.48 to +1.48', '3 seeds', '+0.00, -2.00, -1.00']
    assert row(detector, 'DTN+DPN - LN')[1:] == ['+6.00', '+3.52 to +8.48', '3 seeds', '+6.00, +5.00, +7.00']
    # of each seed ((DTN - LN) + (DTN+DPN - LN+DPN)) / 2: (0 + 5) / 2, (-2 + 2) / 2, (-1 + 5) / 2
    assert row(detector, 'DTN instead of LN, mean over both stems')[4] == '+2.50, +0.00, +2.00'
    # ((LN+DPN - LN) + (DTN+DPN - DTN)) / 2: (1 + 6) / 2, (3 + 7) / 2, (2 + 8) / 2
    assert row(detector, 'DPN instead of the plain stem, mean over both norms')[4] == '+3.50, +5.00, +5.00'
    assert 'a standard error of about 3.8 points' in classifier[-1]  # sqrt(0.33 * 0.67 / 150)
    assert pages.intervals == 10
    assert '24 training runs (0 hours' in pages.count()[0]
    assert 'print 10 intervals' in pages.count()[0]


def test_intervals_of_scored_runs_cover_the_images(study, tmp_path):
    """200 images: LN has the first 100 right, DTN 30 others as well and 10 of these not."""
    correct = {'LN': [i < 100 for i in range(200)], 'DTN': [10 <= i < 130 for i in range(200)]}
    records = [
        (
            Run('pretrain', arm, seed),
            'accuracy/top1',
            sum(right) / 2,
            dict(scores=dict(images=200, correct=pack(right))),
        )
        for arm, right in correct.items()
        for seed in (0, 1)
    ]
    table = pages_of(study, tmp_path, records).table('cpu/pretrain')
    cells = row(table, 'DTN - LN')
    assert (cells[1], cells[3]) == ('+10.00', '2 seeds and images')
    expected = 100 * ((40 / 200 - 0.1**2) / 200) ** 0.5  # of the mean of 30 ones, 10 minus ones and 160 zeros
    assert float(cells[5]) == pytest.approx(expected, rel=0.1)
    low, high = map(float, cells[2].split(' to '))
    assert (high - low) / 2 == pytest.approx(1.96 * expected, rel=0.1)


def test_primary_comparisons_with_holms_correction(tmp_path):
    study = load_study(DOCS.parents[1] / 'projects/experiments/study/configs/evidence.py', tmp_path)
    values = {'LN': (10.0, 11.0, 12.0), 'DTN': (15.0, 16.1, 17.0), 'local': (13.0, 11.0, 12.0)}
    records = [
        (Run('pvt_mini', arm, seed + 10), 'accuracy/top1', value, {})
        for arm, own in values.items()
        for seed, value in enumerate(own)
    ]
    keep(tmp_path / 'results' / 'evidence', records)
    pages = Pages({'evidence': study}, tmp_path / 'results')
    table = pages.primary('evidence')
    cells = row(table, 'DTN - LN, PVT-mini, 200 classes')
    assert cells[1] == '+5.03'
    # t = 5.0333 / (0.057735 / sqrt(3)) = 151 with 2 degrees of freedom: p = 4.386e-5; missing ones count: times 5
    assert cells[5] == '< 0.001'
    p = pages.planned('evidence')['pvt_mini', 'DTN', 'LN'][1]
    assert p == pytest.approx(5 * 4.386e-5, rel=1e-3)
    assert row(table, 'DTN - LN, Nuclei, from weights of the same norm')[1] == 'not measured'


def test_a_detector_that_found_nothing_has_an_ap_of_zero():
    assert value_at(dict(curve={'1': {}}), 1, 'coco/bbox_mAP') == 0.0
    with pytest.raises(KeyError):
        value_at(dict(curve={'1': {}}), 1, 'accuracy/top1')


@pytest.mark.parametrize('name', PLANS)
def test_kept_runs_are_those_of_the_plan(name):
    study = load_study(DOCS.parents[1] / f'projects/experiments/study/configs/{name}.py')
    others = {
        stage
        for stage, records in read_results(study, DOCS / 'results' / name).items()
        for (arm, seed), record in records.items()
        if record.get('fingerprint') != fingerprint(study.run_config(Run(stage, arm, seed)))
    }
    early = {'pvt_mini_3_epochs', 'pvt_mini_6_epochs', 'vit_p16_3_epochs'}  # of an older implementation
    assert others == dict(cpu={'pretrain', 'retinanet'}, real=early).get(name, set())


def test_published_pages_are_what_the_results_give(tmp_path):
    folder = tmp_path / 'study'
    shutil.copytree(DOCS, folder)
    for path in folder.glob('*.md'):
        text = re.sub('(<!-- begin .*? -->).*?(<!-- end -->)', r'\1\2', path.read_text(), flags=re.DOTALL)
        path.write_text(text)
    written = write_pages(folder)
    for path in written:
        if path.suffix == '.md':
            text = path.read_text()
            assert text == (DOCS / path.name).read_text(), f'run the study with --pages to regenerate {path.name}'
            assert all((DOCS / name).is_file() for name in re.findall(r'\]\(([\w-]+\.png)\)', text))
    assert cv2.imread(str(folder / 'summary.png')).std() > 10
