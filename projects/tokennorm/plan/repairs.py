"""What is changed in a config so that upstream code does not fail or choose at random; no judgement."""

from collections.abc import Mapping
from typing import Any

from mmengine.config import Config

from tokennorm.findings import reports
from tokennorm.plan.hooks import metrics_of


def limit_detections(model: Mapping[str, Any]) -> None:
    """Lowers the detections per image of a DETR to those that its queries can give, where mmdet would fail."""
    test_cfg, head = model.get('test_cfg') or {}, model.get('bbox_head') or {}
    classes = head.get('num_classes', 1) if (head.get('loss_cls') or {}).get('use_sigmoid') else 1
    most = model.get('num_queries', 0) * classes
    if 0 < most < test_cfg.get('max_per_img', 0):
        test_cfg['max_per_img'] = most
    masks = model.get('panoptic_head') or {}  # of MaskFormer and Mask2Former
    classes = masks.get('num_things_classes', 0) + masks.get('num_stuff_classes', 0)
    if 0 < (most := classes * masks.get('num_queries', 100)) < test_cfg.get('max_per_image', 0):
        test_cfg['max_per_image'] = most


def choose_best_metric(cfg: Config) -> None:
    """Sets one metric for the best checkpoint: with 'auto' mmengine takes the first value, perhaps that of a class."""
    checkpoint, metrics = (cfg.get('default_hooks') or {}).get('checkpoint') or {}, metrics_of(cfg)
    given = checkpoint.get('save_best')
    names = list(given) if isinstance(given, list | tuple) else [given]
    if metrics and names[:1] == ['auto']:
        checkpoint.update(save_best=metrics[0], rule='greater')
    elif metrics and len(names) > 1:
        checkpoint['save_best'] = names[0]
        reports('several-best', 'save_best', f'the best checkpoint is the one with the highest {names[0]}', names)
