"""The Optuna script of docs/guides/configs.md: three short trials, of which one is pruned."""

import re
from pathlib import Path

import pytest

from tests.helpers.trained import CONFIG, without_report  # noqa: F401

PAGE = Path(__file__).resolve().parents[2] / 'docs' / 'guides' / 'configs.md'


@pytest.mark.slow
@pytest.mark.usefixtures('without_report')
def test_a_search_prunes_and_finds_the_best(demo_data, tmp_path, monkeypatch):
    pytest.importorskip('optuna')
    monkeypatch.chdir(tmp_path)
    (script,) = re.findall(r'```python\n(import optuna.*?)```', PAGE.read_text(), re.DOTALL)
    for before, after in {
        "'DIR'": repr(str(demo_data)),
        "'retinanet_pvt-mini-dtn_fpn_bccd'": repr(CONFIG),
        'epochs=10': 'epochs=2, workers=0',
        'n_trials=20': 'n_trials=3',
        'n_startup_trials=3': 'n_startup_trials=1',
    }.items():
        assert before in script
        script = script.replace(before, after)
    values = iter([0.3, 0.4, 0.1, 0.4, 0.6])  # of the validations: the second trial is pruned at its first
    monkeypatch.setattr(
        'tokennorm.evaluation.coco_metric.CocoMetric.compute_metrics', lambda *_: dict(bbox_mAP=next(values))
    )
    ran = {}
    exec(script, ran)
    trials = ran['study'].trials
    assert [trial.state.name for trial in trials] == ['COMPLETE', 'PRUNED', 'COMPLETE']
    assert [trial.intermediate_values for trial in trials] == [{1: 0.3, 2: 0.4}, {1: 0.1}, {1: 0.4, 2: 0.6}]
    assert ran['study'].best_value == 0.6
