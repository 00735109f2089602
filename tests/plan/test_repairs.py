"""Limits and metrics with which upstream code would fail or choose at random are changed before a recipe is built."""

import pytest
from mmengine.config import Config

from tokennorm.plan.repairs import choose_best_metric, limit_detections


@pytest.mark.parametrize(
    ('queries', 'sigmoid', 'limit'), [(900, True, 300), (50, True, 200), (50, False, 50), (0, True, 300)]
)
def test_a_detr_keeps_as_many_detections_as_its_queries_give(queries, sigmoid, limit):
    """With a sigmoid each query gives one per class: of 4 classes and 50 queries there are 200."""
    head = dict(num_classes=4, loss_cls=dict(use_sigmoid=sigmoid))
    model = dict(num_queries=queries, bbox_head=head, test_cfg=dict(max_per_img=300))
    limit_detections(model)
    assert model['test_cfg']['max_per_img'] == limit


def test_mask2former_keeps_as_many_masks_as_it_has():
    head = dict(num_queries=20, num_things_classes=2, num_stuff_classes=0)
    model = dict(panoptic_head=head, test_cfg=dict(max_per_image=100))
    limit_detections(model)
    assert model['test_cfg']['max_per_image'] == 40
    limit_detections(model)
    assert model['test_cfg']['max_per_image'] == 40


@pytest.mark.parametrize(
    ('given', 'best'),
    [
        ('auto', 'coco/segm_mAP'),
        (['auto', 'x'], 'coco/segm_mAP'),
        (('coco/bbox_mAP', 'x'), 'coco/bbox_mAP'),
        ('x', 'x'),
        (None, None),
    ],
)
def test_one_metric_selects_the_best_checkpoint(given, best):
    evaluator = dict(type='CocoMetric', metric=['bbox', 'segm'], classwise=True)
    hook = dict(type='CheckpointHook', save_best=given)
    cfg = Config(dict(model=dict(type='A'), val_evaluator=evaluator, default_hooks=dict(checkpoint=hook)))
    choose_best_metric(cfg)
    assert cfg.default_hooks.checkpoint.save_best == best
    assert (cfg.default_hooks.checkpoint.get('rule') == 'greater') == ('auto' in (given or ()))
