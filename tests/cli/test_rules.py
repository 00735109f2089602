"""`tokennorm rules`."""

import json

import pytest

from tokennorm.cli.main import main
from tokennorm.findings import RULES


def test_rules_are_listed_and_explained(capfd):
    main(['rules'])
    assert {line.split()[0] for line in capfd.readouterr().out.splitlines()} == RULES.keys()
    main(['rules', 'no-mask', '--json'])
    assert [one['code'] for one in json.loads(capfd.readouterr().out)] == ['no-mask']
    with pytest.raises(SystemExit, match=r"no rule 'no-masks' \(did you mean no-mask\?\)"):
        main(['rules', 'no-masks'])


@pytest.mark.parametrize(
    ('code', 'way_past'),
    [
        ('bbox-as-corners', '--allow bbox-as-corners makes it a warning.'),
        ('bbox-out-of-bounds', '--allow bbox-out-of-bounds silences it.'),
        ('category-group', 'With --allow category-group the data is read as it is written.'),
        ('no-objects', 'It cannot be allowed.'),
    ],
)
def test_a_page_says_what_allowing_a_rule_does(code, way_past, capfd):
    main(['rules', code])
    page = capfd.readouterr().out
    assert page.startswith(f'{RULES[code].severity}: {RULES[code].summary}.')
    assert page.endswith(f'{RULES[code].do.replace("`", "")}. {way_past}\n')


def test_a_page_is_plain_text(capfd):
    for code in RULES:
        main(['rules', code])
    text = capfd.readouterr().out
    assert not [mark for mark in ('`', '**', '](') if mark in text]
