"""`tokennorm check CONFIG`: the rules about recipes without training, with and without the data."""

import json
import re

import pytest

from tests.helpers.trained import CONFIG
from tokennorm.base.messages import UserError
from tokennorm.cli.check import main as check
from tokennorm.commands.check import is_config
from tokennorm.engine.lint import lint

MMDET = 'mmdet::retinanet/retinanet_r18_fpn_1x_coco.py'
THIN = 'feat_channels=8'  # the head takes most of the time otherwise


@pytest.fixture
def write(demo_data, tmp_path):
    """Writes a config with a base and more lines; {data} is the folder of the demo's data."""

    def written(base, *lines):
        path = tmp_path / 'mine.py'
        path.write_text('\n'.join([f"_base_ = '{base}'", *lines]).replace('{data}', str(demo_data)))
        return str(path)

    return written


YOLOX = 'mmdet::yolox/yolox_tiny_8xb8-300e_coco.py'
SIZE_100 = [  # of which the feature maps have sides of 13, 7 and 4
    "steps = [dict(type='LoadImageFromFile'), dict(type='Resize', scale=(100, 100)), dict(type='PackDetInputs')]",
    'test_dataloader = dict(dataset=dict(pipeline=steps))',
    'model = dict(data_preprocessor=dict(pad_size_divisor=1))',
]
ORDER = "data_root='{data}', metainfo=metainfo"
WITH_DATA = [
    *(f"{split}_dataloader = dict(dataset=dict(data_root='{{data}}'))" for split in ('train', 'val', 'test')),
    *(f"{split}_evaluator = dict(ann_file='{{data}}/annotations/val.json')" for split in ('val', 'test')),
]


@pytest.mark.parametrize(
    ('base', 'lines', 'codes', 'absent'),
    [
        (CONFIG, WITH_DATA, {'random-backbone'}, []),
        (CONFIG, [*WITH_DATA, 'model = dict(bbox_head=dict(num_classes=3))'], {'random-backbone', 'head-classes'}, []),
        (
            CONFIG,
            [
                "metainfo = dict(classes=('star', 'disk', 'square', 'triangle'))",
                *(f"{one}_dataloader = dict(dataset=dict({ORDER}))" for one in ('train', 'val')),
                "optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(a_b=dict(lr_mult=2))))",
                WITH_DATA[-2],
            ],
            {'random-backbone', 'class-order', 'idle-custom-keys', 'class-numbers'},  # test has the order of the file
            ['test'],
        ),
        (MMDET, [], set(), ['train', 'val', 'test']),
        (MMDET, [f'model = dict(bbox_head=dict(num_classes=3, {THIN}))'], {'head-classes'}, ['train', 'val', 'test']),
        (YOLOX, SIZE_100, {'unfit-size'}, ['train', 'val', 'test']),
        (
            MMDET,
            ['my_gain = 3', f'model = dict(test_cfg=dict(score_thr=0.3), bbox_head=dict({THIN}))'],
            {'unread-entry', 'low-scores'},
            None,
        ),
    ],
)  # fmt: skip
def test_a_config_is_judged_without_training(write, base, lines, codes, absent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without the data that `make demo` leaves in the repository
    found, without, left_out = lint(write(base, *lines))
    assert {one.code for one in found} == codes
    assert absent is None or without == absent
    assert {'no-batch', 'endless-warm-up', 'partial-weights'} <= set(left_out)
    assert ('lost-objects' in left_out) == ('train' in without)
    assert not {'head-classes', 'unread-entry', 'late-stages'} & set(left_out)


def test_what_cannot_be_built_is_one_line(write):
    with pytest.raises(UserError, match=r'there is no such model \(did you mean RetinaHead\?\)'):
        lint(write(MMDET, "model = dict(bbox_head=dict(type='RetinaHeda'))"))


@pytest.mark.parametrize('kind', ['mmdet.CocoMetric', 'tokennorm.CocoMetric'])
def test_an_evaluator_of_other_images_is_found_in_each_class(write, demo_data, tmp_path, kind):
    """mmdet's keeps no name of its file. It may be alone, in another evaluator, or second in a list."""
    file, other = demo_data / 'annotations' / 'val.json', tmp_path / 'other.json'
    other.write_text(file.read_text().replace('.jpg', '_2.jpg'))
    right, slip = (f"dict(_delete_=True, type='{kind}', ann_file='{path}')" for path in (file, other))
    many = (
        f"val_evaluator = dict(_delete_=True, type='MultiDatasetsEvaluator', metrics=[{slip}], dataset_prefixes=['a'])"
    )
    many = many.replace('[dict(_delete_=True, ', '[dict(')
    pair = f'val_evaluator = [{right}, {slip}]'.replace('_delete_=True, ', '')
    for line in (many, f'val_evaluator = {slip}') if kind.startswith('mmdet') else [pair]:
        found, _, _ = lint(write(CONFIG, *WITH_DATA[:3], line, WITH_DATA[-1]))
        assert [one.code for one in found.of('error')] == ['evaluator-images'], line
        assert f'{other} does not list' in str(found.of('error')[0])


def test_the_command_prints_findings_and_fails_on_errors(write, capfd):
    path = write(MMDET, f'model = dict(bbox_head=dict(num_classes=3, {THIN}))')
    with pytest.raises(SystemExit, match='error: 3 problems of the config, listed above'):
        check([path])
    out = capfd.readouterr().out
    assert 'note: the data of train, val, test is not on this machine' in out
    assert re.search(
        r'^note: \d+ rules for data, training or a checkpoint not applied: .* more; --json has all$', out, re.M
    )
    assert 'ERROR: model.bbox_head.num_classes=3: the data of train has 80 classes' in out
    check([path, '--allow', 'head-classes', '--json'])
    found = json.loads(capfd.readouterr().out)['findings']
    assert {(one['code'], one['severity']) for one in found} == {('head-classes', 'warning')}
    check([write(MMDET, f'model = dict(bbox_head=dict({THIN}))')])
    assert 'No problems found.' in capfd.readouterr().out


@pytest.mark.parametrize(
    ('name', 'is_one'),
    [
        ('retinanet_pvt-mini-dtn_fpn', True),
        ('mmdet::retinanet/no_such_config', True),
        ('configs/none.py', True),
        (CONFIG, True),
        ('.', False),
        ('no_such_folder', False),
        ('no_such_folder/data.yaml', False),
        ('shapes::v2/no_such_file.json', False),  # a name of a package has no suffix
    ],
)
def test_a_config_is_told_from_data(name, is_one):
    assert is_config(name) == is_one
