"""Walks through configs: heads and losses that follow the classes."""

from copy import deepcopy

from tokennorm.config.tree import evaluators, set_num_classes


def test_heads_of_masks_and_weights_of_losses_follow_the_classes():
    mask2former = dict(num_things_classes=80, num_stuff_classes=0, loss_cls=dict(class_weight=[1.0] * 80 + [0.1]))
    model = dict(panoptic_head=mask2former, bbox_head=dict(num_classes=3, loss_cls=dict(class_weight=[2.0] * 3)))
    set_num_classes(model, 2)
    assert (mask2former['num_things_classes'], mask2former['loss_cls']['class_weight']) == (2, [1.0, 1.0, 0.1])
    assert model['bbox_head'] == dict(num_classes=2, loss_cls=dict(class_weight=[2.0, 2.0]))


def test_heads_of_other_classes_keep_their_number():
    """An RPN has one class, and the semantic head of HTC the stuff of COCO."""
    others = dict(rpn_head=dict(num_classes=1), semantic_head=dict(num_classes=183))
    model = deepcopy(others) | dict(bbox_head=[dict(num_classes=80), dict(num_classes=80)])
    set_num_classes(model, 2)
    assert model == others | dict(bbox_head=[dict(num_classes=2), dict(num_classes=2)])


def test_evaluators_are_dicts_alone_in_a_list_or_wrapped():
    metric = dict(type='CocoMetric')
    for given in (metric, [metric], dict(metrics=metric), dict(type='Evaluator', metrics=[metric])):
        assert evaluators(dict(val_evaluator=given), 'val') == [metric]
    for without in ({}, [], dict(type='Evaluator')):
        assert evaluators(dict(val_evaluator=without), 'val') == []
