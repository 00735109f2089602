"""A training run with a report."""

import json
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.config import Config

from tests.helpers.detections import make_truth, noisy
from tests.helpers.scalars import write_scalars
from tokennorm.report.page import write_report

CONFIG = Path(__file__).resolve().parents[2] / 'configs' / 'demo' / 'retinanet_pvt-mini-dtn-dpn_fpn_shapes.py'

VOID = {'meta', 'link', 'br', 'image', 'use', 'rect', 'img', 'input'}


class Balance(HTMLParser):
    """Checks that tags close in order, and collects the text of table cells and all references."""

    def __init__(self):
        super().__init__()
        self.open, self.references, self.rows = [], [], []

    def handle_starttag(self, tag, attributes):
        self.references += [value for name, value in attributes if name in ('src', 'href', 'xlink:href')]
        if tag == 'tr':
            self.rows.append([])
        if tag in ('td', 'th'):
            self.rows[-1].append('')
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.references += [value for name, value in attributes if name in ('src', 'href', 'xlink:href')]

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ('td', 'th'):
            self.rows[-1][-1] += data.strip()


@pytest.fixture(scope='session')
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tiny <run>')
    truth = make_truth(num_images=8)
    for image in truth['images']:
        cv2.imwrite(str(folder / image['file_name']), np.full((400, 400, 3), 128, np.uint8))
    (folder / 'val.json').write_text(json.dumps(truth))
    layers = {f'lambda/backbone.norm{i}.{kind}.mean': 0.5 for i in (1, 2) for kind in ('mean', 'var')}
    entries = [layers | dict(step=0), dict(loss=2.0, lr=0.1, iter=5, step=5), {'coco/bbox_mAP': 0.25, 'step': 1}]
    write_scalars(folder, '20260101_000000', [*entries, {'coco/bbox_mAP': 0.2, 'step': 2}])
    detections = dict(bbox=noisy(truth))
    numbers = write_report(
        folder / 'report.html',
        ann_file=folder / 'val.json',
        detections=detections,
        image_dir=folder,
        work_dir=folder,
        cfg=Config.fromfile(CONFIG),
        checkpoint='epoch_2.pth',
    )
    return folder, truth, detections, numbers
