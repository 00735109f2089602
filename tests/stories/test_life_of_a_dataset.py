"""Train, list suspects, correct them, add images, train again, compare: by the commands and the code of the docs."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from experiments.shapes import make_shapes_dataset
from tests.helpers.commands import ROOT, tool

RECIPE = (ROOT / 'docs' / 'get_started' / 'outputs.md').read_text().partition('## Correct labels')[2]
TOOLS = (ROOT / 'docs' / 'guides' / 'annotation_tools.md').read_text().partition('## Likely label errors')[2]
SMALL = ['--epochs', '5', '--seed', '0', '--workers', '0', '--model', 'trial', '--device', 'cpu']


def block(text, language):
    return re.search(rf'```{language}\n(.*?)```', text, re.DOTALL)[1]


def run(line):
    _, name, *words = shlex.split(line, comments=True)
    tool(name)([*words, *(SMALL if name == 'train' else ())])


def read(path):
    return json.loads(Path(path).read_text('utf-8'))


def write(path, content):
    Path(path).write_text(json.dumps(content), 'utf-8')


@pytest.mark.slow
def test_recipe_from_planted_errors_to_a_better_dataset(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    make_shapes_dataset(tmp_path / 'DIR', num_train=24, num_val=12, image_size=96)
    train = Path('DIR/annotations/train.json')
    right = read(train)
    classes = [category['id'] for category in right['categories']]
    wrong = json.loads(json.dumps(right))
    for one in wrong['annotations'][:24:3]:
        one['category_id'] = classes[(classes.index(one['category_id']) + 1) % len(classes)]
    planted = {one['image_id'] for one in wrong['annotations'][:24:3]}
    write(train, wrong)

    run('tokennorm train --data DIR --out work_dirs/mine')
    audit, audit_val, *rest = block(RECIPE, 'bash').splitlines()
    run(audit)
    run(audit_val)
    content = read('suspects/suspects.json')
    listed = {image['id'] for image in content['images']}
    assert len(planted & listed) > len(planted) / 2

    # A person corrects the images that are listed, and exports them with ids of another program.
    images = [image | dict(id=image['id'] + 500) for image in content['images']]
    numbers = {category['id']: 70 + i for i, category in enumerate(right['categories'])}
    categories = [category | dict(id=numbers[category['id']]) for category in right['categories']]
    corrected = [
        one | dict(id=i, image_id=one['image_id'] + 500, category_id=numbers[one['category_id']])
        for i, one in enumerate(one for one in right['annotations'] if one['image_id'] in listed)
    ]
    write('corrected.json', dict(images=images, annotations=corrected, categories=categories))
    exec(block(TOOLS, 'python'), {})
    after = read(train)
    assert len({one['id'] for one in after['annotations']}) == len(after['annotations']) == len(right['annotations'])
    keys, wanted = (
        [(one['image_id'], one['bbox'], one['category_id']) for one in some['annotations']] for some in (after, right)
    )
    assert {key[0] for key in keys if key not in wanted} == planted - listed

    # Images are added to train.
    make_shapes_dataset(tmp_path / 'more', num_train=16, num_val=1, image_size=96, seed=7)
    new = read('more/annotations/train.json')
    for image in new['images']:
        name = f'new_{Path(image["file_name"]).name}'
        source = next(Path('more').rglob(Path(image['file_name']).name))
        folder = next(Path('DIR').rglob(Path(after['images'][0]['file_name']).name)).parent
        shutil.copy(source, folder / name)
        after['images'].append(image | dict(id=image['id'] + 1000, file_name=name))
    last = max(one['id'] for one in after['annotations'])
    for one in new['annotations']:
        after['annotations'].append(one | dict(id=one['id'] + last, image_id=one['image_id'] + 1000))
    write(train, after)

    capsys.readouterr()
    for line in filter(None, rest):
        run(line)
    printed = capsys.readouterr().out
    assert re.search(r'bbox AP of .*, 95% interval [+-][\d.]+ to [+-][\d.]+', printed)
    assert 'different data' not in printed
