"""`tokennorm.findings`: codes, severities, `--allow` and `--strict`."""

import pytest

import tokennorm.engine.rules  # noqa: F401 - registers the rules of all rooms
from tokennorm.base.messages import UserError
from tokennorm.findings import RULES, Findings, Refusal, Rule, current, judging


def reports(code, *args, **more):
    return RULES[code].report(*args, **more)


def test_severities_and_what_allow_and_strict_make_of_them():
    def severities(**options):
        with judging(Findings(**options)) as found:
            in_force = [reports(code, 'val', items='ab') for code in ('bbox-as-corners', 'bbox-out-of-bounds')]
        return in_force, [one.severity for one in found]

    both = ['bbox-as-corners', 'bbox-out-of-bounds']
    assert severities() == ([True, True], ['error', 'warning'])
    assert severities(strict=True) == ([True, True], ['error', 'error'])
    assert severities(allow=both) == ([False, False], ['warning'])
    assert severities(allow=both, strict=True) == ([False, False], ['warning'])  # the user has judged


def test_a_code_that_exists_is_refused():
    with pytest.raises(ValueError, match='two rules no-mask'):
        Rule('no-mask', 'error', 'another', 'Why.', 'do')
    assert RULES['no-mask'].summary == 'annotations without a segmentation'


def test_a_note_stays_a_note_with_strict():
    with judging(Findings(strict=True)) as found:
        assert reports('oversampled-image')
    assert [one.severity for one in found] == ['note']
    found.stop()


def test_lines_have_place_items_and_code():
    with judging(Findings()) as found:
        reports('bbox-as-corners', 'train', items=['a', 'b'])
        reports('zero-instance-category', 'val', items=['bus'])
        reports('no-mask', 'val')
    error, warning = 'boxes reach beyond their image', 'warning: val: classes without an example: bus'
    lines = found.text().splitlines()
    assert lines[0].startswith(f'ERROR: train: {error}')
    assert '2 (a, b). Convert the boxes' in lines[0]
    assert lines[0].endswith('[bbox-as-corners; if it is right: --allow bbox-as-corners]')
    assert lines[1:] == [f'{warning} [zero-instance-category]']
    assert 'no-mask' not in found.text()
    found.masks = True
    assert 'no-mask' in found.text()


def test_errors_stop_together(capsys):
    with judging(Findings()) as found:
        reports('zero-instance-category', 'val', items=['bus'])
        reports('bbox-as-corners', 'train')
        reports('no-mask', 'train')
        found.show()
        with pytest.raises(Refusal) as refusal:
            found.stop()
        found.show()
    assert [one.code for one in refusal.value.findings] == ['bbox-as-corners']
    assert capsys.readouterr().out == 'warning: val: classes without an example: bus [zero-instance-category]\n'


def test_what_cannot_be_allowed_has_no_way_past_it():
    with pytest.raises(UserError, match=r'rules no-objects` says why'):
        Findings(allow=['no-objects'])
    with pytest.raises(UserError, match=r'no such rule \(did you mean no-mask\?\)'):
        Findings(allow=['no-masks'])
    with pytest.raises(Refusal, match=r'\[unreadable-data\]$'):
        RULES['unreadable-data'].refuse('', 'a.json is empty')


def test_outside_of_a_command_an_error_is_raised_at_once(capsys):
    assert reports('zero-instance-category', 'val', items=['bus'])
    assert 'bus [zero-instance-category]' in capsys.readouterr().out
    with pytest.raises(Refusal):
        reports('bbox-as-corners', 'val')
    current().stop()
    assert reports('zero-instance-category', 'val')  # the error is not kept


def test_rows_are_unique_and_complete():
    for code, rule in RULES.items():
        assert code == rule.code.lower().replace(' ', '-')
        assert not (rule.changes and rule.severity == 'error'), code  # allowed, it would be a warning
        assert rule.why.endswith('.'), code
        assert rule.do[-1:].isalnum() or rule.do[-1:] in '])`', code
