"""The report hook: curves from several starts, pictures, and a summary that names them."""

import json

import cv2
import numpy as np
import torch
from mmengine.structures import InstanceData

from tokennorm.datasets.drawing import tile
from tokennorm.engine.hooks.report import enlarge, plot_curves, read_scalars


def write_scalars(folder, start, entries):
    path = folder / start / 'vis_data' / 'scalars.json'
    path.parent.mkdir(parents=True)
    path.write_text('\n'.join(json.dumps(entry) for entry in entries) + '\n')


def test_scalars_of_a_resumed_training_are_one_curve(tmp_path):
    write_scalars(
        tmp_path, '20260101_000000', [dict(loss=3.0, step=10), dict(loss=9.0, step=20), {'ap': 0.1, 'step': 2}]
    )
    write_scalars(
        tmp_path, '20260102_000000', [dict(loss=2.0, step=20), dict(loss=1.0, step=30), {'ap': 0.2, 'step': 3}]
    )
    loss, ap = read_scalars(tmp_path, 'ap', epoch_length=10, last=30)
    assert loss == {10: 3.0, 20: 2.0, 30: 1.0}
    assert ap == {20: 0.1, 30: 0.2}
    with (tmp_path / '20260102_000000' / 'vis_data' / 'scalars.json').open('a') as file:
        file.write('{"loss": 0.5, "st')  # killed while writing
    loss, ap = read_scalars(tmp_path, 'ap', epoch_length=10, last=20)
    assert (list(loss), list(ap)) == ([10, 20], [20])


def test_enlarge_scales_boxes_and_masks():
    masks = torch.zeros(1, 4, 6, dtype=torch.bool)
    masks[0, 1, 2] = True
    instances = InstanceData(bboxes=torch.tensor([[1.0, 2.0, 3.0, 4.0]]), masks=masks)
    enlarge(instances, 2.0, (8, 12))
    assert instances.bboxes.tolist() == [[2, 4, 6, 8]]
    assert instances.masks[0].nonzero().tolist() == [[2, 4], [2, 5], [3, 4], [3, 5]]


def test_tile_keeps_every_image(tmp_path):
    images = [np.full((4, 3 + i, 3), i, np.uint8) for i in range(3)]
    sheet = tile(images, columns=2, gap=1)
    assert sheet.shape == (10, 12, 3)
    for i, (y, x) in enumerate([(0, 0), (0, 6), (5, 0)]):
        assert (sheet[y : y + 4, x : x + 3 + i] == i).all()


def test_curves_are_drawn_with_and_without_points(tmp_path):
    for name, curve in [('some', {1: 2.0, 5: 1.0}), ('none', {})]:
        plot_curves(tmp_path / f'{name}.png', curve, curve, 'ap')
    some, none = (cv2.imread(str(tmp_path / f'{name}.png')) for name in ('some', 'none'))
    assert some.shape == none.shape == (720, 960, 3)
    assert (some != none).any()
