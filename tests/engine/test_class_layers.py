"""A new training run takes rows of its classes by name, and says how many."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from mmdet.datasets import CocoDataset
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from tests.helpers.exporting import build, config
from tokennorm.checkpoints import Checkpoint
from tokennorm.config.paths import config as mmdet_config
from tokennorm.config.tree import set_num_classes
from tokennorm.engine.class_layers import class_rows, classes_of
from tokennorm.engine.runner import load_from_checkpoint
from tokennorm.findings import Findings, judging

LAYER = 'bbox_head.retina_cls.weight'
COCO = CocoDataset.METAINFO['classes']


def recipe(number):
    cfg = config(strides=(4,))
    cfg.model.neck = None
    set_num_classes(cfg.model, number)
    return cfg


def checkpoint_of(model, path, **meta):
    torch.save(dict(state_dict=model.state_dict(), meta=meta), path)
    return Checkpoint.read(path)


def rows(tensor, number):
    """(anchors * classes, ...) by class."""
    return tensor.reshape(-1, number, *tensor.shape[1:]).transpose(0, 1)


@pytest.mark.parametrize(
    ('meta', 'classes', 'line'),
    [
        (
            dict(dataset_meta=dict(classes=('red', 'green'))),
            ('green', 'red'),
            '2 of 2 rows taken by name, in another order',
        ),
        (
            dict(CLASSES=('red', 'green')),
            ('green', 'blue', 'red'),
            '2 of 3 rows taken by name, in another order, 1 newly initialized',
        ),  # of mmdet 2
        (
            dict(dataset_meta=dict(CLASSES=('red', 'green'))),
            ('bus',),
            '0 of 1 rows taken by name, 1 newly initialized',
        ),  # of 3.0rc
        (
            dict(cfg="dataset_type = 'CocoDataset'"),
            ('owl', 'person', 'car'),
            '2 of 3 rows taken by name, 1 newly initialized',
        ),
        (
            dict(dataset_meta=dict(classes=COCO)),
            ('truck', 'person'),
            '2 of 2 rows taken by name, in another order',
        ),
    ],
)
def test_rows_follow_the_names(meta, classes, line, tmp_path):
    trained = classes_of(Checkpoint('x.pth', dict(meta=meta)))
    old, cfg = build(recipe(len(trained))), recipe(len(classes))
    new = build(cfg)
    checkpoint = checkpoint_of(old, tmp_path / 'old.pth', **meta)
    cfg.load_from, said = checkpoint.source, []
    runner = SimpleNamespace(
        model=new,
        hooks=[],
        train_dataloader=SimpleNamespace(dataset=SimpleNamespace(metainfo=dict(classes=classes))),
        logger=SimpleNamespace(info=said.append),
        call_hook=lambda *_, **__: None,
        _resume=False,
    )
    load_from_checkpoint(runner, cfg, training=True, checkpoint=checkpoint)
    assert f'classes: {line}' in said[0]
    assert 'retina_cls' not in said[0]  # neither new nor left out
    torch.nn.init.normal_(new.get_parameter(LAYER))  # the runner initializes weights between
    initial = rows(new.state_dict()[LAYER].clone(), len(classes))
    runner.load_checkpoint('old.pth')
    loaded, before = rows(new.state_dict()[LAYER], len(classes)), rows(old.state_dict()[LAYER], len(trained))
    for i, name in enumerate(classes):
        assert torch.equal(loaded[i], before[trained.index(name)] if name in trained else initial[i])
    assert torch.equal(new.bbox_head.retina_reg.weight, old.bbox_head.retina_reg.weight)


@pytest.mark.parametrize(
    ('meta', 'allow', 'line'),
    [
        (dict(dataset_meta=dict(classes=('green', 'red'))), (), ''),  # the same
        (dict(dataset_meta=dict(classes=('rot', 'gruen'))), ('checkpoint-classes',), ''),  # the same by other names
        ({}, (), 'classes: the checkpoint does not name its classes; their rows are taken in its order where they fit'),
    ],
)
def test_layers_stay_whole(meta, allow, line, tmp_path):
    cfg = recipe(2)
    model = build(cfg)
    with judging(Findings(allow)):
        found = class_rows(cfg, model, checkpoint_of(model, tmp_path / 'a.pth', **meta), ['green', 'red'])
    assert found == ({}, line)


def test_random_numbers_of_the_run_stay_the_same(tmp_path):
    cfg = recipe(2)
    model = build(cfg)
    checkpoint = checkpoint_of(model, tmp_path / 'a.pth', dataset_meta=dict(classes=('red', 'green')))
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    found, _ = class_rows(cfg, model, checkpoint, ['green', 'red'])
    assert set(found) == {LAYER, LAYER.replace('weight', 'bias')}
    assert torch.equal(torch.rand(3), expected)


def test_layers_that_are_not_found_are_said(tmp_path):
    cfg = Config(dict(recipe(2)))
    cfg.model.roi_head = dict(num_classes=5)
    model = build(recipe(2))
    checkpoint = checkpoint_of(model, tmp_path / 'a.pth', dataset_meta=dict(classes=('red', 'green')))
    found, line = class_rows(cfg, model, checkpoint, ['green', 'red'])
    assert not found
    assert 'unknown (ValueError: heads have 2 and 5 classes) and are taken as they are' in line


def test_two_stage_deformable_detr_keeps_the_scores_of_its_proposals():
    """Row 0 of the last layer is of objects of any class."""
    init_default_scope('mmdet')
    cfg = Config.fromfile(mmdet_config('mmdet::deformable_detr/deformable-detr-refine-twostage_r50_16xb2-50e_coco'))
    cfg.model.backbone = dict(type=nn.Identity)
    set_num_classes(cfg.model, 3)
    model = MODELS.build(deepcopy(cfg.model))
    old = {key: torch.rand_like(value) for key, value in model.state_dict().items()}
    checkpoint = Checkpoint('x.pth', dict(state_dict=old, meta=dict(dataset_meta=dict(classes=('a', 'b', 'c')))))
    taken, _ = class_rows(cfg, model, checkpoint, ['c', 'd', 'a'])
    key = 'bbox_head.cls_branches.{}.weight'
    assert torch.equal(taken[key.format(6)](model.state_dict()[key.format(6)])[0], old[key.format(6)][0])
    assert torch.equal(taken[key.format(5)](model.state_dict()[key.format(5)])[0], old[key.format(5)][2])
