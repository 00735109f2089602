"""The report of records that were made up: its figures are those worked out by hand, unfinished runs count nowhere."""

import re
import runpy

import cv2
import pytest

from experiments.robustness.names import CORRUPTIONS
from experiments.study.figures import value_at
from experiments.study.page import factor_difference, write_report
from experiments.study.plan import ARMS, Run, load_study
from experiments.study.results import read_runs
from tests.helpers.study_records import AP, CONFIG, ROOT, record, write


@pytest.fixture
def study(tmp_path):
    return load_study(CONFIG, tmp_path / 'runs')


@pytest.fixture
def finished(study):
    for run in study.runs():
        metric = study.stages[run.stage].metric
        value = AP[run.arm][run.seed]
        write(study, run, record(run, metric, value if run.stage == 'retinanet' else 100 * value))
    return study


def report(study, folder=None):
    """Path of the page of the runs in the work directory."""
    return write_report(study, read_runs(study), folder or study.work_dir)[0]


def row(text, start):
    """Cells of the table row that begins so."""
    (line,) = re.findall(rf'^\| {re.escape(start)} \|.*$', text, re.MULTILINE)
    return [cell.strip() for cell in line.strip('|').split('|')]


def test_tables_are_those_worked_out_by_hand(finished):
    text = report(finished).read_text()
    classifier, detector = text.split('## retinanet')
    assert row(detector, 'LN')[1:] == ['0.310 ± 0.010', '0.300', '0.320', '0.310', '1,234,567', '1.0', '1.00']
    assert row(classifier, 'LN')[1:5] == ['31.00 ± 1.00', '30.00', '32.00', '31.00']
    assert row(detector, 'LN+DPN - LN')[1:] == ['+0.020 ± 0.025', '+0.010, +0.030, +0.020', '3', 'inside']
    assert row(detector, 'DTN - LN')[1:] == ['-0.010 ± 0.025', '+0.000, -0.020, -0.010', '3', 'inside']
    assert row(detector, 'DTN+DPN - LN')[1:] == ['+0.060 ± 0.025', '+0.060, +0.050, +0.070', '3', 'outside']
    # of each seed ((DTN - LN) + (DTN+DPN - LN+DPN)) / 2: (0 + 5) / 2, (-2 + 2) / 2, (-1 + 5) / 2 hundredths
    name = 'DTN instead of LN, mean over both stems'
    assert row(detector, name)[1:] == ['+0.015 ± 0.033', '+0.025, +0.000, +0.020', '3', 'inside']
    # ((LN+DPN - LN) + (DTN+DPN - DTN)) / 2: (1 + 6) / 2, (3 + 7) / 2, (2 + 8) / 2
    name = 'DPN instead of the plain stem, mean over both norms'
    assert row(detector, name)[1:] == ['+0.045 ± 0.022', '+0.035, +0.050, +0.050', '3', 'outside']
    assert '24 of 24 training runs are finished' in text
    assert 'Together they took 36 minutes, and 24 minutes of processor time.' in text
    assert 'not as COCO results' in text
    assert 'seed 100' in text
    assert '400 training and 150 validation images, 4 epochs of batches of 8, AdamW (lr 0.001)' in text


def test_curves_are_drawn(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    copied = write_report(finished, read_runs(finished), tmp_path / 'docs' / 'study')
    assert [path.name for path in copied] == ['study.md', 'pretrain.png', 'retinanet.png']
    assert cv2.imread(str(copied[2])).std() > 10
    text = copied[0].read_text()
    linked = {name for name in re.findall(r'\]\((.*?\.png)\)', text) if not name.startswith('inside_')}
    assert linked == {path.name for path in copied[1:]}
    assert str(tmp_path) not in text
    assert str(ROOT) not in text


def test_runs_that_are_not_finished_count_nowhere(study):
    report(study)
    for run in (Run('pretrain', arm, seed) for arm in ('LN', 'DTN') for seed in (0, 1)):
        write(study, run, record(run, 'accuracy/top1', 50.0 + run.seed + (run.arm == 'DTN')))
    unfinished = Run('pretrain', 'DTN', 1)
    write(study, unfinished, record(unfinished, 'accuracy/top1', 1.0, finished=False))
    text = report(study).read_text()
    assert '3 of 24 training runs are finished' in text
    assert row(text, 'LN')[1:5] == ['50.50 ± 0.71', '50.00', '51.00', 'not run']
    assert row(text, 'DTN')[1:5] == ['51.00', '51.00', 'not run', 'not run']
    assert 'Not run: LN+DPN, DTN+DPN.' in text
    assert row(text, 'DTN - LN')[1:] == ['+1.00', '+1.00', '1', 'unknown from one pair']
    assert 'mean over both stems' not in text
    assert 'Not run: `retinanet`.' in text
    assert '## retinanet' not in text


def test_lambda_and_corrupted_images_have_their_tables(study):
    gains = {('LN', 0): 0.0, ('LN', 1): 0.0, ('DTN', 0): 1.0, ('DTN', 1): 3.0}
    for (arm, seed), gain in gains.items():
        corrupted = dict(images=7, clean=30.0) | {name: 10.0 + 2 * gain for name in CORRUPTIONS}
        more = {'lambda': [0.25 - 0.1 * seed, 0.75]} if arm == 'DTN' else {}
        run = Run('pretrain', arm, seed)
        write(study, run, record(run, 'accuracy/top1', 30.0 + gain, corrupted=corrupted | dict(fog=gain), **more))
    text = report(study).read_text()
    assert row(text, 'DTN')[-1] == '0.15 to 0.75'
    assert row(text, 'LN')[-1] == ''
    assert 'seeds 0, 1, on 7 validation images' in text
    assert row(text, 'clean')[1:] == ['30.00', '30.00', '+0.00 ± 0.00']
    assert row(text, 'gaussian noise')[1:3] == ['10.00', '14.00']
    # t of 1 degree of freedom is 12.706; 2 and 6 have a standard error of 2, 1 and 3 one of 1
    assert row(text, 'gaussian noise')[3] == '+4.00 ± 25.41'
    assert row(text, 'fog')[1:] == ['0.00', '2.00', '+2.00 ± 12.71']
    # (14 * 10 + 0) / 15, and (14 * 14 + 2) / 15
    assert row(text, 'mean of the corruptions')[1:3] == ['9.33', '13.20']


def test_a_factor_needs_all_arms_of_a_seed():
    values = {(arm, seed): AP[arm][seed] for arm in ARMS for seed in range(3)}
    del values['DTN', 1]
    difference = factor_difference(values, 'DTN instead of LN, mean over both stems')
    assert difference.values == pytest.approx((0.025, 0.02))


def test_a_detector_that_found_nothing_has_an_ap_of_zero():
    assert value_at(dict(curve={'1': {}}), 1, 'coco/bbox_mAP') == 0.0
    with pytest.raises(KeyError):
        value_at(dict(curve={'1': {}}), 1, 'accuracy/top1')


def test_the_tool_writes_the_report_of_what_is_there(finished, tmp_path, capsys):
    main = runpy.run_path(str(ROOT / 'projects' / 'experiments' / 'study' / 'run.py'))['main']
    main([str(CONFIG), '--work-dir', str(finished.work_dir), '--report', '--docs', str(tmp_path / 'docs')])
    assert 'study.md' in capsys.readouterr().out
    assert (tmp_path / 'docs' / 'study.md').read_text() == (finished.work_dir / 'study.md').read_text()


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--piece', 'pretrain', 'BN', '0'], r"--piece pretrain BN 0: .*\['LN', 'LN\+DPN', 'DTN', 'DTN\+DPN'\]"),
        (['--piece', 'pretrain', 'LN', '7'], r'\(0, 1, 2\)'),
        (['--cfg-options', 'seeds=[]'], r'seeds=\[\] must be different integers'),
    ],
)
def test_the_tool_says_what_is_wrong(tmp_path, arguments, message):
    main = runpy.run_path(str(ROOT / 'projects' / 'experiments' / 'study' / 'run.py'))['main']
    with pytest.raises(SystemExit, match=message):
        main([str(CONFIG), '--work-dir', str(tmp_path), *arguments])
