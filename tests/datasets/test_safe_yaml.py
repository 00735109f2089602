"""Anchors of YAML: those of lists that are shared are read, and those that multiply are refused before they are."""

from itertools import pairwise

import pytest
import yaml

from tokennorm.datasets.safe_yaml import check_aliases


def bomb(levels, width=9):
    names = 'abcdefghijklmnop'
    lines = [f'a: &a [{", ".join("x" * width)}]']
    for before, name in pairwise(names[: levels + 1]):
        lines.append(f'{name}: &{name} [{", ".join([f"*{before}"] * width)}]')
    return '\n'.join(lines)


@pytest.mark.parametrize(
    'text',
    [
        bomb(8) + '\nnames: *i',
        bomb(15),
        'a: &a {x: 1}\n' + '\n'.join(f'{b}: &{b} {{<<: [{", ".join(["*" + a] * 9)}]}}' for a, b in pairwise('abcdefg')),
        'a: &a {' + ', '.join(f'k{i}: v' for i in range(400)) + '}\nnames: [' + ', '.join(['*a'] * 300) + ']',
    ],
)  # fmt: skip
def test_anchors_that_multiply_are_refused(text):
    with pytest.raises(yaml.YAMLError, match=r'expand to .e\+.. more entries'):
        check_aliases(text)


@pytest.mark.parametrize('text', ['names: &n [a, *n]', 'a: &a {b: {c: *a}}', '&r\na: [1]\nb: *r'])
def test_an_anchor_inside_itself_is_refused(text):
    with pytest.raises(yaml.YAMLError, match='contains itself'):
        check_aliases(text)


@pytest.mark.parametrize(
    'text',
    [
        '',
        'names: [a, b]',
        'names: ["*", "a*b", "&x"]',
        'base: &b {train: t, val: v}\nmore: {<<: *b, names: [a]}',
        'names: &n [' + ', '.join(f'class{i}' for i in range(5000)) + ']\nsame: *n\nagain: *n',
        'names: [' + ', '.join(f'"c*{i}"' for i in range(2000)) + ']',
        bomb(2),
        'train: images/*\nval: images/val',
    ],
)
def test_other_yaml_is_left_alone(text):
    check_aliases(text)
    yaml.safe_load(text)
