"""The table of published detectors repeats mmdet's metafiles, and names configs of this package."""

import re
from pathlib import Path

import mmdet
import pytest
import yaml

from tokennorm.base.published import PUBLISHED, published_detector
from tokennorm.config.paths import config

CONFIGS = Path(mmdet.__file__).parent / '.mim' / 'configs'


def stated(*folders):
    """Box and mask AP of mmdet's detectors by URL."""
    models = [m for folder in folders for m in yaml.safe_load((CONFIGS / folder / 'metafile.yml').open())['Models']]
    return {m['Weights']: [value for r in m['Results'] for value in r['Metrics'].values()] for m in models}


@pytest.mark.parametrize('published', PUBLISHED.values(), ids=list(PUBLISHED))
def test_published_detectors_are_those_of_mmdet(published):
    assert stated('pvt', 'swin', 'rtmdet', 'ssd')[published.url] == [
        ap for ap in (published.box_ap, published.mask_ap) if ap is not None
    ]
    assert Path(config(published.config)).stem == published.config
    assert re.fullmatch(r'.*-[0-9a-f]{8}\.pth', published.url)


def test_all_on_pvt_and_swin_are_listed_except_a_duplicate():
    (left_out,) = stated('pvt', 'swin').keys() - {each.url for each in PUBLISHED.values()}
    assert 'mask_rcnn_swin-t-p4-w7_fpn_fp16_ms-crop-3x' in left_out  # as good as without fp16


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('retinanet_pvt-t_fpn_1x_coco', 'retinanet_pvt-t'),
        ('configs/pvt/retinanet_pvt-t_fpn_1xb2-accum8-1x_coco.py', 'retinanet_pvt-t'),
        ('tokennorm::retinanet_pvtv2-b5_fpn_1x_coco', 'retinanet_pvtv2-b5'),
        ('mask-rcnn_swin-t-p4-w7_fpn_1x_coco', 'mask-rcnn_swin-t'),
        ('retinanet_pvt-t-dtn_fpn_1x_coco', None),
        ('retinanet_pvt-l_fpn_1x_coco', None),
        ('mask-rcnn_pvt-t_fpn_1x_coco', None),
        ('retinanet_swin-t-p4-w7_fpn_1x_coco', None),
        ('mmdet::retinanet/retinanet_r50_fpn_1x_coco', None),
        ('configs/fine_tune/rtmdet_tiny_12e_coco.py', 'rtmdet-tiny'),
        ('rtmdet-ins_tiny_12e_coco', 'rtmdet-ins-tiny'),
        ('rtmdet_pvtv2-b2_300e_coco', None),
    ],
)
def test_published_detector_of_a_config(name, expected):
    assert published_detector(name) is (expected and PUBLISHED[expected])
