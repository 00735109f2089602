"""Kept results: they give the report of the runs themselves, and the published page is what they give."""

import json
import re
import runpy
from pathlib import Path

import cv2
import pytest

from experiments.study.figures import final_values
from experiments.study.page import write_report
from experiments.study.plan import Run, load_study
from experiments.study.results import keep_results, read_results, read_runs
from tests.helpers.study_records import AP, record, write

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / 'docs' / 'study'


@pytest.fixture
def study(tmp_path):
    study = load_study(ROOT / 'projects' / 'experiments' / 'study' / 'configs' / 'cpu.py', tmp_path / 'runs')
    for run in study.runs():
        metric = study.stages[run.stage].metric
        finished = (run.arm, run.seed) != ('DTN', 1)
        write(study, run, record(run, metric, AP[run.arm][run.seed], finished=finished))
    return study


def test_the_report_of_kept_results_is_that_of_the_runs(study, tmp_path):
    kept = keep_results(study, tmp_path / 'results')
    assert [path.name for path in kept] == ['pretrain.json', 'retinanet.json']
    assert len(json.loads(kept[0].read_text())) == 4 * 3 - 1, 'an unfinished run was kept'
    pages = [
        write_report(study, records, tmp_path / name)[0].read_text()
        for name, records in (('one', read_runs(study)), ('two', read_results(study, tmp_path / 'results')))
    ]
    tables = [[line for line in page.splitlines() if line.startswith('| ')] for page in pages]
    assert tables[0] == tables[1]
    assert len(tables[0]) == 2 * (2 + 4 + 5)


def test_kept_runs_stay_when_others_are_added(study, tmp_path, monkeypatch):
    monkeypatch.setattr('experiments.study.results.fingerprint', lambda cfg: '0')
    results = tmp_path / 'results'
    keep_results(study, results)
    other = load_study(study.config, tmp_path / 'other')
    for run in (Run('pretrain', 'DTN', 1), Run('pretrain', 'LN', 0)):
        write(other, run, record(run, 'accuracy/top1', 12.5))
    assert [path.name for path in keep_results(other, results)] == ['pretrain.json']
    records = read_results(study, results)['pretrain']
    assert len(records) == 4 * 3
    values = final_values(records, 'accuracy/top1')
    assert values['DTN', 1] == values['LN', 0] == 12.5
    assert values['LN', 1] == AP['LN'][1]
    monkeypatch.setattr('experiments.study.results.fingerprint', lambda cfg: '1')
    write(other, run, record(run, 'accuracy/top1', 50.0))
    with pytest.raises(ValueError, match=r'pretrain\.json: LN with seed 0 has another config'):
        keep_results(other, results)


def test_stages_share_kept_runs_of_their_own_seeds(tmp_path):
    study = load_study(ROOT / 'projects' / 'experiments' / 'study' / 'configs' / 'real.py', tmp_path / 'runs')
    for run in [*(Run('vit_p16', 'LN', seed) for seed in range(3)), Run('vit_p16_blocks', 'l_dtn 2', 0)]:
        write(study, run, record(run, 'accuracy/top1', 20.0 + run.seed))
    assert set(read_runs(study)['vit_p16_blocks']) == {('LN', 0), ('l_dtn 2', 0)}
    keep_results(study, tmp_path / 'results')
    assert len(json.loads((tmp_path / 'results' / 'vit_p16_blocks.json').read_text())) == 1
    found = read_results(study, tmp_path / 'results')
    assert set(found['vit_p16_blocks']) == {('LN', 0), ('l_dtn 2', 0)}
    assert set(found['vit_p16']) == {('LN', 0), ('LN', 1), ('LN', 2)}
    page = write_report(study, found, tmp_path / 'docs')[0].read_text()
    assert '\n4 of ' in page


def test_a_paper_has_a_column_of_its_own(study, tmp_path):
    paper = dict(paper='Table 5, ImageNet', paper_values={'DTN': 81.7})
    study = load_study(study.config, study.work_dir, {f'stages.pretrain.{key}': paper[key] for key in paper})
    page = write_report(study, read_runs(study), tmp_path)[0].read_text()
    assert '| paper: Table 5, ImageNet |' in page
    rows = [line.split('|') for line in page.splitlines() if line.startswith(('| LN |', '| DTN |'))]
    assert [row[-2].strip() for row in rows[:2]] == ['', '81.7']


def test_a_stage_of_one_seed_has_its_differences_in_the_table(study, tmp_path):
    entries = dict(seeds=(0,), title='A title')
    study = load_study(study.config, study.work_dir, {f'stages.pretrain.{k}': v for k, v in entries.items()})
    first = write_report(study, read_runs(study), tmp_path)[0].read_text().partition('## retinanet')[0]
    assert '## A title\n\nStage `pretrain`, top-1 accuracy (%):' in first
    cells = [[c.strip() for c in line.split('|')[1:4]] for line in first.splitlines() if line.startswith('| ')]
    assert cells == [
        ['arm', 'seed 0', 'minus LN'],
        ['LN', '0.30', ''],
        ['LN+DPN', '0.31', '+0.01'],
        ['DTN', '0.30', '+0.00'],
        ['DTN+DPN', '0.36', '+0.06'],
    ]
    assert 'pretrain.png' not in first


def test_the_summary_figure_is_that_of_a_study_with_findings(study, tmp_path):
    assert 'summary.png' not in {path.name for path in write_report(study, read_runs(study), tmp_path)}
    study = load_study(study.config, study.work_dir, dict(findings='DTN helps.', page='other'))
    page, summary, *_ = write_report(study, read_runs(study), tmp_path)
    assert (page.name, summary.name) == ('other.md', 'summary.png')
    assert summary.stat().st_size > 10_000
    assert 'DTN helps.\n\n![' in page.read_text()


def test_the_summary_figure_has_the_stages_that_are_named(study, tmp_path):
    widths = []
    for stages in ((), ('retinanet',), ('retinanet', 'pretrain')):
        named = load_study(study.config, study.work_dir, dict(findings='DTN helps.', summary=stages))
        widths.append(cv2.imread(str(write_report(named, read_runs(named), tmp_path)[1])).shape[1])
    assert widths[0] == widths[2] > widths[1]
    with pytest.raises(ValueError, match=r"summary names \['none'\], expected some of"):
        load_study(study.config, study.work_dir, dict(summary=('none',)))


def test_unusable_results_are_named(study, tmp_path):
    with pytest.raises(FileNotFoundError, match=r'has no results of this study, expected pretrain\.json'):
        read_results(study, tmp_path)
    (tmp_path / 'pretrain.json').write_text('[{"arm": "BN", "seed": 0}]')
    with pytest.raises(ValueError, match="holds arm 'BN' with seed 0, which"):
        read_results(study, tmp_path)
    (tmp_path / 'pretrain.json').write_text('[{"arm": "LN"')
    with pytest.raises(ValueError, match=r'pretrain\.json does not hold results'):
        read_results(study, tmp_path)


@pytest.mark.parametrize(('study', 'page'), [('real', 'real.md'), ('cpu', 'study.md')])
def test_a_published_page_is_what_its_results_give(tmp_path, monkeypatch, study, page):
    monkeypatch.chdir(ROOT)
    main = runpy.run_path('projects/experiments/study/run.py')['main']
    main(
        [
            f'projects/experiments/study/configs/{study}.py',
            '--report',
            '--from',
            f'docs/study/results/{study}',
            '--docs',
            str(tmp_path),
        ]
    )
    text = (DOCS / page).read_text()
    assert (tmp_path / page).read_text() == text, f'regenerate docs/study/{page}'
    assert all((DOCS / name).is_file() for name in re.findall(r'\]\((.*?)\)', text))


def test_results_need_a_place_for_the_page():
    main = runpy.run_path(str(ROOT / 'projects' / 'experiments' / 'study' / 'run.py'))['main']
    with pytest.raises(SystemExit):
        main(['projects/experiments/study/configs/real.py', '--report', '--from', 'docs/study/results/real'])
