"""Each rule about data fires on its faults, stays quiet on correct, unusual data, and can be overruled."""

import pytest

from tests.helpers.cases import slow
from tests.helpers.judging import codes, judge
from tests.rules.data_cases import CASES
from tests.rules.folders import coco, cvat, voc, yolo
from tokennorm.findings import RULES, Refusal, rules_about

FIRES = [(code, i) for code, case in CASES.items() for i in range(len(case.fires))]
QUIET = [(code, i) for code, case in CASES.items() for i in range(len(case.quiet))]
ALLOWED = [(code, i) if i == 0 else slow(code, i) for code, i in FIRES if RULES[code].can_allow]
CHANGES = [(code, i) for code, i in FIRES if RULES[code].changes]
CLEAN = {'COCO': coco(), 'YOLO': yolo(), 'VOC': voc(), 'CVAT': cvat()}
EXPECTED = {'YOLO': {'no-mask'}, 'VOC': {'no-mask'}, 'CVAT': {'no-mask'}}  # there are none


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv('TOKENNORM_CACHE', str(tmp_path / 'cache'))
    (tmp_path / 'data').mkdir()
    return tmp_path / 'data'


def found_in(root, allow=()):
    """The findings, those of a refusal too."""
    try:
        return list(judge(root, allow=allow)[1])
    except Refusal as refusal:
        return list(refusal.findings)


def test_every_rule_has_cases_on_both_sides():
    assert CASES.keys() ^ {rule.code for rule in rules_about('data', 'masks')} == set(), 'a Case each in data_cases.py'
    for code, case in CASES.items():
        assert len(case.fires) >= 1, f'{code}: an input that fires it'
        assert len(case.quiet) >= 2, f'{code}: two correct, unusual inputs that stay quiet'
        assert (case.as_written is not None) == RULES[code].changes, code


@pytest.mark.parametrize(('code', 'i'), FIRES)
def test_it_fires(folder, code, i):
    found = [one for one in found_in(CASES[code].fires[i](folder), CASES[code].allow) if one.code == code]
    assert {one.severity for one in found} == {RULES[code].severity}


@pytest.mark.parametrize(('code', 'i'), QUIET)
def test_it_stays_quiet(folder, code, i):
    assert code not in codes(found_in(CASES[code].quiet[i](folder), CASES[code].allow))


@pytest.mark.parametrize('name', CLEAN)
def test_clean_data_is_quiet(folder, name):
    assert set(codes(found_in(CLEAN[name](folder)))) == EXPECTED.get(name, set())


@pytest.mark.parametrize(('code', 'i'), ALLOWED)
def test_it_can_be_allowed(folder, code, i):
    rule = RULES[code]
    found = [one for one in found_in(CASES[code].fires[i](folder), [code, *CASES[code].allow]) if one.code == code]
    assert {one.severity for one in found} == ({'warning'} if rule.severity == 'error' else set())


@pytest.mark.parametrize(('code', 'i'), CHANGES)
def test_allowed_it_changes_nothing(folder, code, i):
    root, as_written = CASES[code].fires[i](folder), CASES[code].as_written
    assert not as_written(judge(root)[0])
    assert as_written(judge(root, allow=[code])[0])
