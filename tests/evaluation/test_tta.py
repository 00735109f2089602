"""Test-time augmentation: views of an image and the limit on merged boxes. cli/test_test.py merges them."""

import pytest
from mmengine.config import Config

from tokennorm.base.messages import UserError
from tokennorm.config.paths import config
from tokennorm.evaluation.tta import use_tta


def test_views_of_the_config():
    cfg = Config.fromfile(config('retinanet_pvt-t_fpn_1x_coco'))
    cfg.model.test_cfg.max_per_img = 300
    merge, line = use_tta(cfg)
    assert '6 views' in line  # three sizes, mirrored or not
    assert cfg.test_dataloader.dataset.pipeline == cfg.tta_pipeline
    assert (merge.type, merge.tta_cfg.max_per_img, cfg.tta_model.tta_cfg.max_per_img) == ('DetTTAModel', 300, 100)


def test_mirror_images_without_views_in_the_config():
    cfg = Config.fromfile(config('retinanet_pvt-mini_fpn'))
    plain = cfg.test_dataloader.dataset.pipeline
    merge, line = use_tta(cfg)
    assert '2 views' in line
    *first, views = cfg.test_dataloader.dataset.pipeline
    assert first == plain[:-1]
    assert [[step.get('prob') for step in steps] for steps in views.transforms] == [[0.0, 1.0], [None]]
    assert (merge.tta_cfg.max_per_img, merge.tta_cfg.nms.iou_threshold) == (cfg.model.test_cfg.max_per_img, 0.5)


def test_proposals_are_not_merged_boxes():
    cfg = Config.fromfile(config('mask-rcnn_pvt-mini_fpn'))
    del cfg.model.roi_head['mask_head']
    assert cfg.model.test_cfg.rpn.max_per_img > cfg.model.test_cfg.rcnn.max_per_img
    assert use_tta(cfg)[0].tta_cfg.max_per_img == cfg.model.test_cfg.rcnn.max_per_img


def test_masks_are_refused():
    with pytest.raises(UserError, match='--tta merges boxes only'):
        use_tta(Config.fromfile(config('mask-rcnn_pvt-mini_fpn')))
