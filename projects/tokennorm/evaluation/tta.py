"""Test-time augmentation: views of each image, whose boxes are merged."""

from copy import deepcopy
from math import prod

from mmengine.config import Config, ConfigDict

from tokennorm.base.messages import UserError
from tokennorm.config.tree import innermost_datasets, is_classifier, walk
from tokennorm.registry import type_name

_KEYS = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor', 'flip', 'flip_direction')
# The first view is the image itself: merged detections have the ground truth of that view, which --show-dir draws.
_FLIPPED = [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)]
_FLIPS = dict(type='TestTimeAug', transforms=[_FLIPPED, [dict(type='PackDetInputs', meta_keys=_KEYS)]])
_MERGE = dict(type='DetTTAModel', tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100))


def use_tta(cfg: Config) -> tuple[ConfigDict, str]:
    """Replaces the pipeline of the test data by `tta_pipeline`, or by test images and their mirror images without one.

    Returns the model that merges the boxes of an image, for mmengine's `PrepareTTAHook`: the config's `tta_model`, or
    mmdet's default, which keeps at least as many per image as the detector. And a line that describes the views.
    """
    if is_classifier(cfg):
        raise UserError('--tta is for detectors; this config is a classifier')
    if any(name.endswith('mask_head') for name, _ in walk(cfg.model, 'model')):  # mmdet does not merge masks
        raise UserError('--tta merges boxes only, and this detector predicts masks; leave out --tta')
    for dataset in innermost_datasets(cfg.test_dataloader.dataset):
        dataset['pipeline'] = cfg.get('tta_pipeline') or [*dataset['pipeline'][:-1], deepcopy(_FLIPS)]
        views = prod(len(choices) for choices in dataset['pipeline'][-1]['transforms'])
    merge = ConfigDict(deepcopy(cfg.get('tta_model') or _MERGE))
    if type_name(merge) == 'DetTTAModel' and not merge.get('tta_cfg'):
        merge.tta_cfg = deepcopy(_MERGE['tta_cfg'])
    for name, limits in walk(cfg.model.get('test_cfg'), 'test_cfg'):
        if 'rpn' not in name and 'tta_cfg' in merge:  # a model of one's own may have other arguments
            merge.tta_cfg.max_per_img = max(merge.tta_cfg.get('max_per_img', 100), limits.get('max_per_img', 0))
    return merge, f'Test-time augmentation: {views} views per image, whose boxes are merged by NMS'
