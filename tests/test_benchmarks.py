"""The benchmarks run and print their tables."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pycocotools import mask as coco_masks

BENCHMARKS = Path(__file__).resolve().parents[1] / 'benchmarks'


@pytest.mark.slow
def test_backbones_prints_time_and_memory_of_each_host():
    command = [sys.executable, BENCHMARKS / 'backbones.py', '--size', '64', '64', '--rounds', '1', '--only', 'PVT']
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if 'MiB' in line]
    assert [row.split('|')[1:3] for row in rows] == [
        [f' {arch} ', f' {mode} '] for arch in ('PVT-T', 'PVTv2-B1') for mode in ('forward', 'forward + backward')
    ]
    for row, hosts in zip(rows, (2, 2, 3, 3), strict=True):
        numbers = [float(number) for number in re.findall(r'([\d.]+) (?:ms|MiB)', row)]
        assert len(numbers) == 2 * hosts
        assert min(numbers) > 0


@pytest.mark.slow
def test_detector_step_prints_the_share_of_dtn(monkeypatch, capsys):
    names = ['pvt/retinanet_pvt-t_fpn_1x_coco', 'pvt/retinanet_pvt-t-dtn_fpn_1x_coco']
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, 'argv', ['detector_step.py', *names, '--size', '64', '64', '--rounds', '1'])
    runpy.run_path(str(BENCHMARKS / 'detector_step.py'), run_name='__main__')
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if '/' in line]
    assert [row[0] for row in rows] == names
    assert rows[0][2] == '1.000'
    shares = [float(row[-1].rstrip('%')) for row in rows]
    assert shares[0] == 0 < shares[1] < 50


def test_sequences_prints_a_row_for_each_length(monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, 'argv', ['sequences.py', '--seconds', '0', '--dims', '16'])
    threads = torch.get_num_threads()
    runpy.run_path(str(BENCHMARKS / 'sequences.py'), run_name='__main__')
    torch.set_num_threads(threads)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ['250', '500', '1000', '2000']
    assert all(float(number) > 0 for row in rows for number in row)


def test_stitched_images_and_their_annotations_match(monkeypatch):
    """Each object is a rectangle of its own level, so that its place in the stitched image can be read off."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    tiles = runpy.run_path(str(BENCHMARKS / 'tiles.py'))
    images, annotations = [], []
    for i in range(5):  # the fifth does not fill a stitched image
        image = np.zeros((20, 30, 3), np.uint8)
        image[2 + i : 9, 4 : 11 + i] = 10 + i
        images.append(image)
        polygon = [4, 2 + i, 11 + i, 2 + i, 11 + i, 9, 4, 9]
        annotations.append(
            dict(id=i + 1, image_id=i, category_id=1, iscrowd=0, area=1, segmentation=[polygon])
            | dict(bbox=[4, 2 + i, 7 + i, 7 - i])
        )
    small = tiles['as_coco'](annotations, images, [dict(id=1, name='a')])
    small.imgs = {i: dict(id=i, height=20, width=30) for i in range(5)}
    small.imgToAnns = {i: [annotation] for i, annotation in enumerate(annotations)}
    (stitched,) = tiles['stitch'](images, 2)
    assert stitched.shape == (40, 60, 3)
    moved = tiles['stitched_annotations'](small, [0, 1, 2, 3], (20, 30), 2)
    for i, annotation in enumerate(moved):
        mask = stitched[..., 0] == 10 + i
        assert annotation['image_id'] == 1
        y, x = np.nonzero(mask)
        np.testing.assert_array_equal(annotation['bbox'], [x.min(), y.min(), np.ptp(x) + 1, np.ptp(y) + 1])
        np.testing.assert_array_equal(coco_masks.decode(annotation['segmentation']), mask)


def test_scaling_counts_saved_tensors_and_the_time_of_a_step(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    scaling = runpy.run_path(str(BENCHMARKS / 'scaling.py'))
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    x = torch.rand(5, 8)
    assert scaling['saved_bytes'](model, x) == 4 * (5 * 8 + 5 * 16 + 5 * 16)  # inputs of the three layers
    step = scaling['milliseconds_of_step']
    assert step(2e9, 10**7, 128, 8, 312, 0.3, 300, 25) == pytest.approx(
        (1e3 * 3 * 4e9 * 128 / 93.6e12, 1e3 * 1.75 * 4e7 / 300e9)
    )
    assert step(2e9, 10**7, 64, 16, 312, 0.3, 300, 25)[1] == pytest.approx(1e3 * 1.875 * 4e7 / 25e9)
