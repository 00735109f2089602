"""`tokennorm weights`."""

import json

from tokennorm.base.published import PUBLISHED
from tokennorm.cli.main import main


def test_weights_command_lists_names_and_files(capfd):
    main(['weights'])
    rows = {line.split()[0]: line.split() for line in capfd.readouterr().out.splitlines() if line}
    assert rows.keys() >= PUBLISHED.keys()
    row = rows['mask-rcnn_swin-t']
    assert row[1:6] == ['mask-rcnn_swin-t-p4-w7_fpn_1x_coco', '3x', '46.0', '41.6', '191']
    assert [rows[name][2] for name in ('mask-rcnn_swin-t-1x', 'retinanet_pvt-t')] == ['1x', '1x']
    assert len(row) == 6
    main(['weights', '--json'])
    detectors = json.loads(capfd.readouterr().out)
    assert {one['name']: one['url'] for one in detectors}['mask-rcnn_swin-t'] == PUBLISHED['mask-rcnn_swin-t'].url
