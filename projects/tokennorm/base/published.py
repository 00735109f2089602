"""Detectors that mmdet's authors trained on COCO, whose weights TokenNorm's configs load.

The table repeats mmdet's metafiles (`configs/*/metafile.yml` of pvt, swin, rtmdet and ssd in onedl-mmdetection 3.5.1),
except the sizes: those are 4 bytes per number of the model.
"""

import re
from dataclasses import dataclass
from pathlib import Path

_HOST = 'https://download.openmmlab.com/mmdetection'


@dataclass(frozen=True)
class Published:
    """A published detector."""

    name: str  # its name in commands, `tokennorm predict NAME IMAGES`
    config: str  # TokenNorm's config with this model, whose schedule may differ
    schedule: str  # of its training, in epochs of COCO: '1x' is 12, '3x' 36, '300e' 300
    url: str  # the file
    size: int  # of the file, in MB
    box_ap: float  # on COCO val2017, 0 to 100, as its authors state
    mask_ap: float | None = None  # mask AP; None for box detectors


def _retinanet(key: str, time_and_hash: str, size: int, box_ap: float) -> Published:
    config = f'retinanet_{key}_fpn_1x_coco'
    url = f'{_HOST}/v2.0/pvt/{config}/{config}_{time_and_hash}.pth'
    return Published(f'retinanet_{key}', config, '1x', url, size, box_ap)


def _mask_rcnn(
    key: str, schedule: str, time_and_hash: str, size: int, box_ap: float, mask_ap: float, suffix: str = ''
) -> Published:
    file = f'mask_rcnn_{key}-p4-w7_fpn_{schedule}_coco'
    config, url = f'mask-rcnn_{key}-p4-w7_fpn_1x_coco', f'{_HOST}/v2.0/swin/{file}/{file}_{time_and_hash}.pth'
    return Published(f'mask-rcnn_{key}{suffix}', config, schedule[-2:], url, size, box_ap, mask_ap)


def _rtmdet(
    key: str, time_and_hash: str, size: int, box_ap: float, mask_ap: float | None = None, of: str = 'rtmdet'
) -> Published:
    file = f'{of}_{key}_8xb32-300e_coco'
    url = f'{_HOST}/v3.0/rtmdet/{file}/{file}_{time_and_hash}.pth'
    return Published(f'{of}-{key}', f'{of}_{key}_12e_coco', '300e', url, size, box_ap, mask_ap)


_ALL = (  # of detectors with one config, the best comes first
    _retinanet('pvt-t', '20210831_103110-17b566bd', 92, 36.6),
    _retinanet('pvt-s', '20210906_142921-b6c94a5b', 137, 40.4),
    _retinanet('pvt-m', '20210831_103243-55effa1b', 216, 41.7),
    _retinanet('pvtv2-b0', '20210831_103157-13e9aabe', 52, 37.1),
    _retinanet('pvtv2-b1', '20210831_103318-7e169a7d', 95, 41.2),
    _retinanet('pvtv2-b2', '20210901_174843-529f0b9a', 140, 44.6),
    _retinanet('pvtv2-b3', '20210903_151512-8357deff', 220, 46.0),
    _retinanet('pvtv2-b4', '20210901_170151-83795c86', 289, 46.3),
    _retinanet('pvtv2-b5', '20210902_201800-3420eb57', 367, 46.1),
    _mask_rcnn('swin-t', 'ms-crop-3x', '20210906_131725-bacf6f7b', 191, 46.0, 41.6),
    _mask_rcnn('swin-t', '1x', '20210902_120937-9d6b7cfa', 191, 42.7, 39.3, suffix='-1x'),
    _mask_rcnn('swin-s', 'fp16_ms-crop-3x', '20210903_104808-b92c91f1', 277, 48.2, 43.2),
    _rtmdet('tiny', '20220902_112414-78e30dcc', 20, 40.9),
    _rtmdet('s', '20220905_161602-387a891e', 36, 44.5),
    _rtmdet('tiny', '20221130_151727-ec670f7e', 23, 40.5, 35.4, of='rtmdet-ins'),
    _rtmdet('s', '20221121_212604-fdc5d7ec', 41, 44.0, 38.7, of='rtmdet-ins'),
    Published(
        'ssdlite',
        'ssdlite_mobilenetv2_12e_coco',
        '600e',
        f'{_HOST}/v2.0/ssd/ssdlite_mobilenetv2_scratch_600e_coco/'
        'ssdlite_mobilenetv2_scratch_600e_coco_20210629_110627-974d9307.pth',
        17,
        21.3,
    ),
)
PUBLISHED = {each.name: each for each in _ALL}


def published_detector(config: str | Path) -> Published | None:
    """Returns the published detector with the model of a config, of its path or name, or None.

    The name up to the neck decides, so that the schedule may differ; configs with DTN or Dual PatchNorm have other
    names, and no published detector.
    """
    model = _model(str(config))
    return next((each for each in _ALL if _model(each.config) == model), None)


def _model(config: str) -> str:
    """'retinanet_pvt-t' of '.../retinanet_pvt-t_fpn_1x_coco.py'."""
    return re.split('/|::', config)[-1].removesuffix('.py').partition('_fpn_')[0]
