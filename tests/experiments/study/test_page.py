"""Tables of made-up results against numbers worked out by hand, and the published pages against their results."""

import json
import re
import shutil
from dataclasses import replace

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from scipy.stats import t as student_t
from scipy.stats import ttest_ind

from experiments.study.page import Pages, relative_time
from experiments.study.plan import Run, load_study
from experiments.study.results import final_values, read_results, value_at
from experiments.study.run import DOCS, PLANS, RESULTS, TABLES, write_pages
from experiments.study.scoring import pack
from experiments.study.training import fingerprint
from experiments.study.travel import sum_of_rates
from tests.helpers.cases import fast_first

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
    # AP without scores, and accuracies while no stage has scores: no interval
    for table in (classifier, detector):
        assert row(table, 'LN+DPN - LN')[1:] == ['+2.00', 'none', '3', 'not measured', 'not measured']
        assert row(table, 'DTN+DPN - LN')[1] == '+6.00'
    assert pages.intervals == 0
    assert pages.arms('cpu/pretrain', 'cpu/retinanet')[2] == '| LN | 31.00 ± 1.00 | 31.00 ± 1.00 |'
    assert '24 training runs (0 hours' in pages.count()[0]


def scored(run, correct):
    """A run of a classifier with its scores per image."""
    value = 100 * sum(correct) / len(correct)
    return run, 'accuracy/top1', value, dict(scores=dict(images=200, value=value, correct=pack(correct)))


def test_intervals_cover_runs_and_images(study, tmp_path):
    """200 images. LN has the first 100 right; DTN 30 others as well and 10 of these not, in its second run 12 not."""
    correct = {
        ('LN', 0): [i < 100 for i in range(200)],
        ('LN', 1): [i < 100 for i in range(200)],
        ('DTN', 0): [10 <= i < 130 for i in range(200)],
        ('DTN', 1): [12 <= i < 130 for i in range(200)],
    }
    pages = pages_of(study, tmp_path, [scored(Run('pretrain', *key), right) for key, right in correct.items()])
    cells = row(pages.table('cpu/pretrain'), 'DTN - LN')
    assert (cells[1], cells[3]) == ('+9.50', '2')  # 59.5 - 50
    # Runs of LN are equal in each image. Those of DTN differ in 2 of 200: residuals of +-0.5 there less their mean of
    # 0.005, and of 0.005 elsewhere, in both runs: sum of squares 2 (2 0.495^2 + 198 0.005^2) = 0.99, of 199 free.
    run = 100**2 * 0.99 / 199 / 200
    # Images: 30 differences of 1, 10 of -1, 2 of -0.5, the others 0
    images = 100**2 * (30 + 10 + 0.5 - 200 * 0.095**2) / 199 / 200
    variance = max(0.5, run) / 2 + images - run / 2  # accuracies of DTN: 60 and 59
    assert float(cells[4]) == pytest.approx(variance**0.5, abs=0.005)
    assert float(cells[5]) == pytest.approx(images**0.5, abs=0.005)
    freedom = variance**2 / ((max(0.5, run) / 2) ** 2 / 1 + (images - run / 2) ** 2 / 199)
    half = student_t.isf(0.025, freedom) * variance**0.5
    assert cells[2] == f'{9.5 - half:+.2f} to {9.5 + half:+.2f}'


def test_stages_without_scores_borrow_the_image_error(study, tmp_path):
    kinds = {('LN', 0): 100, ('LN', 1): 101, ('DTN', 0): 110, ('DTN', 1): 112}
    records = [scored(Run('pretrain', *key), [i < end for i in range(200)]) for key, end in kinds.items()]
    others = [(Run('pretrain', 'LN+DPN', seed), 'accuracy/top1', 40.0 + seed, {}) for seed in (0, 1)]
    keep(tmp_path / 'results' / 'evidence', [*records, *others])
    pages = Pages({'evidence': study}, tmp_path / 'results')
    own, borrowed = (pages.difference('evidence/pretrain', arm, 'LN') for arm in ('DTN', 'LN+DPN'))
    assert not own.images.is_borrowed
    assert borrowed.images.is_borrowed
    assert borrowed.images.arms == pytest.approx(own.images.arms * 200 / 150)  # the records have 150 test images
    assert '(borrowed)' in row(pages.table('evidence/pretrain'), 'LN+DPN - LN')[5]


def test_pages_take_new_arms_stages_and_repeats(study, tmp_path):
    new = replace(study.stages['pretrain'], name='later', title='Later stage', arms=('LN', 'DTN 20x', 'DTN start'))
    later = replace(study, stages={'later': new}, arms={**study.arms, 'DTN 20x': {}, 'DTN start': {}})
    values = {'LN': (20, 22, 24), 'DTN 20x': (26, 27, 31)}
    keep(
        tmp_path / 'results' / 'longer',
        [
            scored(Run('later', arm, seed), [i < 2 * value for i in range(200)])
            for arm, own in values.items()
            for seed, value in enumerate(own)
        ],
    )
    again = [record(Run('later', arm, 1), 'accuracy/top1', value) for arm, value in (('LN', 25.0), ('DTN 20x', 30.0))]
    (tmp_path / 'results' / 'longer' / 'later_repeated.json').write_text(json.dumps(again))
    pages = Pages({'longer': later}, tmp_path / 'results')
    lines = pages.tables('longer')
    assert lines[0] == '### Later stage'
    assert 'Not run: DTN start.' in lines
    assert row(lines, 'DTN 20x - LN')[1] == '+6.00'
    assert pages.summary_rows()['Later stage'] == 'longer/later'
    table = pages.repeated('longer/later')
    assert [line.split(' | ')[-1].rstrip(' |') for line in table[2:6]] == ['+6.00', '+5.00', '+7.00', '+5.00']
    assert row(table, 'mean ± deviation')[-1] == '+5.75 ± 0.96'
    assert 'of 6 training runs' not in pages.count()[0]
    assert '8 training runs' in pages.count()[0]


def test_sums_of_learning_rates():
    configs = DOCS.parents[1] / 'configs'
    steps, total = sum_of_rates(Config.fromfile(configs / 'pvt/retinanet_pvt-t-dtn_fpn_1x_coco.py'), 117_266)
    # 7,330 steps per epoch: 500 rise from 1e-7 to 1e-4; a tenth of the rate in epochs 9 to 11, then a hundredth
    assert steps == 87_960
    assert total == pytest.approx(1e-4 * (7330 * (8 + 0.3 + 0.01) - 500 * 0.4995), rel=1e-4)
    imagenet = Config.fromfile(configs / 'imagenet/pvt-tiny-dtn_8xb128_in1k.py')
    _, total = sum_of_rates(imagenet, 1_281_167, lr=5e-4)
    # 1,252 steps per epoch: half of the rate on average in the 5 of warm-up, half of rate and 1e-5 in the cosine
    assert total == pytest.approx(1252 * (5 * 5.005e-4 / 2 + 295 * 5.1e-4 / 2), rel=5e-3)


def test_primary_comparisons_with_holms_correction(tmp_path):
    study = load_study(DOCS.parents[1] / 'projects/experiments/study/configs/evidence.py', tmp_path)
    values = {'LN': (10.0, 11.0, 12.0), 'DTN': (15.0, 16.1, 17.0), 'local': (13.0, 11.0, 12.0)}
    scores = dict(images=10_000, correct=pack([True] * 10_000))  # the same in all runs: no error by the images
    records = [
        (Run('pvt_mini', arm, seed + 10), 'accuracy/top1', value, dict(scores=scores | dict(value=value)))
        for arm, own in values.items()
        for seed, value in enumerate(own)
    ]
    keep(tmp_path / 'results' / 'evidence', records)
    pages = Pages({'evidence': study}, tmp_path / 'results')
    table = pages.primary('evidence')
    cells = row(table, 'DTN - LN, PVT-mini, 200 classes')
    assert cells[1] == '+5.03'
    # t = 5.0333 / sqrt((1 + 1.00333) / 3) = 6.160 with 4.000 degrees of freedom: p = 0.003518
    # Missing comparisons count: times 5
    assert cells[4] == '0.018'
    p = pages.planned('evidence')['pvt_mini', 'DTN', 'LN'][1]
    assert p == pytest.approx(5 * ttest_ind(values['DTN'], values['LN'], equal_var=False).pvalue, rel=1e-3)
    assert row(table, 'DTN - LN, Nuclei, from weights of the same norm')[1] == 'not measured'
    assert pages.primary('evidence', '90')[0].startswith('| planned comparison | mean | 90% interval')


def test_a_scored_run_has_the_value_of_its_scores():
    """Its intervals are theirs; the last epoch was evaluated on another machine, or rounded."""
    curve = {'1': {'accuracy/top1': 23.63}}
    records = {('LN', 0): dict(curve=curve, epochs=1), ('LN', 1): dict(curve=curve, epochs=1, scores=dict(value=23.64))}
    assert final_values(records, 'accuracy/top1') == {('LN', 0): 23.63, ('LN', 1): 23.64}


def test_a_detector_that_found_nothing_has_an_ap_of_zero():
    assert value_at(dict(curve={'1': {}}), 1, 'coco/bbox_mAP') == 0.0
    with pytest.raises(KeyError):
        value_at(dict(curve={'1': {}}), 1, 'accuracy/top1')


@pytest.mark.parametrize('name', fast_first(PLANS, 'cpu', 'evidence'))
def test_kept_runs_are_those_of_the_plan(name):
    study = load_study(DOCS.parents[1] / f'projects/experiments/study/configs/{name}.py')
    others = {
        stage
        for stage, records in read_results(study, RESULTS / name).items()
        for (arm, seed), record in records.items()
        if record.get('fingerprint') != fingerprint(study.run_config(Run(stage, arm, seed)))
    }
    early = {'pvt_mini_3_epochs', 'pvt_mini_6_epochs', 'vit_p16_3_epochs'}  # of an older implementation
    assert others == dict(cpu={'pretrain', 'retinanet'}, real=early).get(name, set())


def test_published_pages_are_what_the_results_give(tmp_path):
    copies = [tmp_path / 'docs', tmp_path / 'pages']
    for folder, copy in zip((DOCS, TABLES), copies, strict=True):
        shutil.copytree(folder, copy)
        for path in copy.glob('*.md'):
            text = re.sub('(<!-- begin .*? -->).*?(<!-- end -->)', r'\1\2', path.read_text(), flags=re.DOTALL)
            path.write_text(text)
    for path in write_pages(*copies):
        if path.suffix == '.md':
            text, original = path.read_text(), dict(zip(copies, (DOCS, TABLES), strict=True))[path.parent] / path.name
            assert text == original.read_text(), f'run the study with --pages to regenerate {path.name}'
            assert all((original.parent / name).is_file() for name in re.findall(r'\]\(([\w-]+\.png)\)', text))
    assert cv2.imread(str(copies[0] / 'summary.png')).std() > 10


def test_times_of_two_machines_are_not_compared():
    seconds = {('LN', 0): (10.0, 'a'), ('DTN', 0): (11.0, 'a'), ('LN', 1): (10.0, 'a'), ('DTN', 1): (5.0, 'b')}
    records = {key: dict(cpu_seconds=time, machines=[name]) for key, (time, name) in seconds.items()}
    assert relative_time(records, 'DTN') == '1.10'
    del records['DTN', 0]
    assert relative_time(records, 'DTN') == 'not measured'


def test_plans_without_a_result_are_named(study, tmp_path):
    """A stage without any result, one that shares the runs of another, and arms."""
    runs = [run for run in study.runs() if run.stage == 'pretrain' and run.arm != 'DTN']
    shared = replace(study.stages['pretrain'], name='again', title='', arms=('LN', 'DTN'))
    study = replace(study, stages=study.stages | dict(again=shared))
    pages = pages_of(study, tmp_path, [(run, metric(study, run), 50, {}) for run in runs])
    titles = [study.stages[name].title for name in ('pretrain', 'retinanet')]
    assert pages.fill('<!-- begin missing --><!-- end -->').splitlines()[4:-2] == [
        f'| `cpu.py` | {titles[0]} (`pretrain`) | DTN |',
        f'| `cpu.py` | {titles[1]} (`retinanet`) | all |',
        '| `cpu.py` | again (`again`) | DTN |',
    ]


def test_the_pages_name_every_plan_without_a_result():
    text = ''.join(path.read_text() for folder in (DOCS, TABLES) for path in folder.glob('*.md'))
    for name in PLANS:
        study = load_study(DOCS.parents[1] / f'projects/experiments/study/configs/{name}.py')
        records = read_results(study, RESULTS / name)
        for key, stage in study.stages.items():
            for arm in set(stage.arms) - {arm for arm, _ in records[key]}:
                assert re.search(rf'`{name}\.py` .*\(`{key}`\) .*\b(all|{re.escape(arm)}) ?', text), (name, key, arm)


INTERVAL = re.compile(r'([+-]?\d+\.\d+) to ([+-]?\d+\.\d+)')
PAGES = [DOCS / path for path in ('../concepts/dtn.md', '../concepts/normalizers.md', 'study.md', '../../README.md')]


@pytest.mark.parametrize('path', [*PAGES, *sorted(TABLES.glob('*.md'))], ids=lambda path: path.stem)
def test_intervals_in_sentences_are_those_of_the_tables(path):
    """Those with a level, such as (0.71 to 2.08, 95%), are of other runs than the tables."""
    made = re.compile('<!-- begin .*?<!-- end -->', re.DOTALL)
    tables = '\n'.join(found for page in TABLES.glob('*.md') for found in made.findall(page.read_text('utf-8')))
    known = np.array(INTERVAL.findall(tables), dtype=float)
    known = np.concatenate([known, -known[:, ::-1]])  # of A - B, and of B - A
    sentence = re.compile(rf'\((?:[+-]?\d+\.\d+, )?{INTERVAL.pattern}(?!\d|, \d+%)')
    for pair in sentence.findall(made.sub('', path.read_text('utf-8'))):
        assert np.abs(known - np.array(pair, dtype=float)).max(axis=1).min() < 0.0551, f'{path}: {" to ".join(pair)}'
