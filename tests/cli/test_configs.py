"""`tokennorm configs`."""

import pytest

from tokennorm.cli.configs import config_rows
from tokennorm.cli.main import main


def test_configs_show_what_the_metafiles_have():
    (row,) = config_rows('pvt/retinanet_pvt-t-dtn_fpn_1x_coco')
    assert row[:3] == ('pvt/retinanet_pvt-t-dtn_fpn_1x_coco', 'DTN', 'plain')
    assert row[3:] == ('23.0', '223.3', '38.0', '-')
    assert config_rows('trial/retinanet_pvt-mini-local_fpn')[0][1] == 'LocalLayerNorm'
    assert config_rows('swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco')[0][-1] == '46.0 / 41.6'
    with pytest.raises(SystemExit, match=r"no config matches 'retinanett' \(did you mean retinanet\?\)"):
        main(['configs', 'retinanett'])
