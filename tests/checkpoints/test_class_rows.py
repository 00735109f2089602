"""Rows of classes by name: values in the layers of mmdet's own heads, each with a layer of its own for its names."""

from copy import deepcopy
from functools import cache

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import nn

from tokennorm.checkpoints.class_rows import (
    ClassAxis,
    class_axes,
    describe_rows,
    rows_by_name,
    take_class_rows,
    take_rows,
)
from tokennorm.config.open_config import name_types
from tokennorm.config.paths import config
from tokennorm.config.tree import set_num_classes
from tokennorm.engine.class_layers import _with_one_class_more

OLD, NEW = ('cat', 'dog', 'owl'), ('owl', 'ant', 'cat', 'bee')
ROWS = [2, None, 0, None]


def by_class(tensor):
    """One output per class, and maybe the background."""
    return tensor


def by_anchor(anchors):
    return lambda tensor: tensor.reshape(anchors, -1, *tensor.shape[1:]).transpose(0, 1)


def by_box(tensor):
    return tensor.reshape(-1, 4, *tensor.shape[1:])


# The head of mmdet's config, a layer of it, and how mmdet reads the outputs of the layer: by class in the first axis.
LAYERS = {
    'retinanet/retinanet_r50_fpn_1x_coco': dict(retina_cls=by_anchor(9)),
    'fcos/fcos_r50-caffe_fpn_gn-head_1x_coco': dict(conv_cls=by_class),
    'rtmdet/rtmdet_tiny_8xb32-300e_coco': {'rtm_cls.0': by_class, 'rtm_cls.2': by_class},
    'yolox/yolox_tiny_8xb8-300e_coco': {'multi_level_conv_cls.1': by_class},
    'ssd/ssd300_coco': {'cls_convs.0.0': by_anchor(4), 'cls_convs.1.0': by_anchor(6)},
    'faster_rcnn/faster-rcnn_r50_fpn_1x_coco': {'bbox_head.fc_cls': by_class, 'bbox_head.fc_reg': by_box},
    'mask_rcnn/mask-rcnn_r50_fpn_1x_coco': {'mask_head.conv_logits': by_class},
    'cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco': {'head.2.fc_cls': by_class, 'head.1.conv_logits': by_class},
    'detr/detr_r50_8xb2-150e_coco': dict(fc_cls=by_class),
    'deformable_detr/deformable-detr_r50_16xb2-50e_coco': {'cls_branches.0': by_class, 'cls_branches.5': by_class},
    'dino/dino-4scale_r50_8xb2-12e_coco': {'cls_branches.6': by_class, 'dn_query_generator.label_embedding': by_class},
    'yolo/yolov3_d53_8xb8-320-273e_coco': {'convs_pred.0': lambda tensor: by_anchor(3)(tensor)[5:]},
    'mask2former/mask2former_r50_8xb2-lsj-50e_coco': dict(cls_embed=by_class),
    'point_rend/point-rend_r50-caffe_fpn_ms-1x_coco': {
        'point_head.fc_logits': lambda tensor: tensor,
        'mask_head.fc_logits': lambda tensor: tensor.reshape(-1, 49, *tensor.shape[1:]),
    },
}  # fmt: skip
SLOW = ('cascade', 'dino', 'deformable', 'faster_rcnn', 'mask2former', 'point_rend', 'yolo/')


@cache
def recipe(name):
    cfg = Config.fromfile(config(f'mmdet::{name}'))
    name_types(cfg)
    cfg.model.backbone = dict(type=nn.Identity)
    return cfg.model


def built(name, classes):
    init_default_scope('mmdet')
    model = Config(dict(model=recipe(name))).model
    set_num_classes(model, len(classes))
    return MODELS.build(deepcopy(model)), model


@pytest.mark.parametrize(
    'name', [pytest.param(name, marks=[pytest.mark.slow] * name.startswith(SLOW)) for name in LAYERS]
)
def test_rows_of_heads_are_taken_by_name(name):
    old, _ = built(name, OLD)
    new, model = built(name, NEW)
    with torch.no_grad():
        for i, p in enumerate(old.parameters()):
            p.copy_(torch.arange(p.numel()).reshape(p.shape) + 0.1 * i)
    trained, initial = old.state_dict(), new.state_dict()
    axes = class_axes(new, len(NEW), _with_one_class_more(model, len(NEW)).state_dict())
    taken = take_class_rows(axes, initial, trained, OLD, NEW)
    for layer, read in LAYERS[name].items():
        for kind in ('weight', 'bias'):
            keys = [key for key in axes if key.endswith(f'{layer}.{kind}')]
            assert keys or (kind == 'bias' and 'embedding' in layer)
            for key in keys:
                result = taken[key](initial[key])
                before, after, now = read(trained[key]), read(initial[key]), read(result)
                if key.endswith('point_head.fc_logits.weight'):  # its inputs are features and scores of classes
                    assert torch.equal(now[0, 256:][[0, 2]], before[2, 256:][[2, 0]])
                    assert torch.equal(now[0, [257, 259]], after[0, [257, 259]])
                    before, after, now = before[:, :256], after[:, :256], now[:, :256]
                for i, row in enumerate(ROWS):
                    assert torch.equal(now[i], after[i] if row is None else before[row]), (key, i)
                assert torch.equal(now[len(NEW) :], before[len(OLD) :])  # the background
    others = {key for key, value in trained.items() if value.shape != initial[key].shape}
    assert others == set(taken)  # all that depends on classes, and nothing else


def test_rows_of_yolov3_keep_box_and_objectness():
    axis = ClassAxis(0, copies=3, others=5, others_first=True, class_outside=False)
    old, new = torch.arange(24.0), -torch.ones(27)
    result = take_rows([axis], old, [None, 0, 2, 1], new).reshape(3, 9)
    for anchor in range(3):
        assert result[anchor].tolist() == [*(8 * anchor + torch.tensor([0, 1, 2, 3, 4.0])).tolist(), -1, *(
            8 * anchor + torch.tensor([5, 7, 6.0])
        ).tolist()]  # fmt: skip


@pytest.mark.parametrize(
    ('trained', 'classes', 'rows', 'line'),
    [
        ('ab', 'ab', [0, 1], 'classes: 2 of 2 rows taken by name'),
        ('ab', 'ba', [1, 0], 'classes: 2 of 2 rows taken by name, in another order'),
        ('ab', 'bcd', [1, None, None], 'classes: 1 of 3 rows taken by name, 2 newly initialized'),
        ('ab', 'cd', [None, None], 'classes: 0 of 2 rows taken by name, 2 newly initialized'),
        ('aa', 'aa', [0, 1], 'classes: 2 of 2 rows taken by name'),  # LVIS has names of several classes
        ('aa', 'aba', [0, None, 1], 'classes: 2 of 3 rows taken by name, 1 newly initialized'),
    ],
)
def test_classes_are_found_by_name(trained, classes, rows, line):
    assert rows_by_name(trained, classes) == rows
    assert describe_rows(rows) == line
