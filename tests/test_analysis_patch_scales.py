"""Scales of Dual PatchNorm's first norm: each is at the place of its pixel."""

from pathlib import Path

import cv2
import pytest
import torch
from torch import nn

from tokennorm.analysis.metrics import patch_scales
from tokennorm.layers import DualPatchEmbed

ROOT = Path(__file__).resolve().parents[1]


def test_a_scale_is_at_the_place_of_its_pixel():
    """The scale at (row 1, column 2, channel 0) is that of the one pixel whose change it multiplies."""
    stem = DualPatchEmbed(3, 8, patch_size=4)
    nn.init.normal_(stem.patch_norm.weight)
    scales = patch_scales(nn.Sequential(nn.ReLU(), stem))
    assert scales.shape == (4, 4, 3)
    outputs = []
    stem.patch_norm.register_forward_hook(lambda _, inputs, output: outputs.append((inputs[0], output)))
    image = torch.zeros(1, 3, 4, 4)
    image[0, 0, 1, 2] = 1
    stem(image)
    (before, after), place = outputs[0], outputs[0][0].argmax()
    normalized = (before - before.mean()) / (before.var(unbiased=False) + 1e-6).sqrt()
    ratio = (after.flatten()[place] / normalized.flatten()[place]).item()
    assert ratio == pytest.approx(scales[1, 2, 0].item(), rel=1e-4)


def test_the_figure_of_a_config(tmp_path, capsys):
    from tokennorm.cli.analyze import main

    demo = ROOT / 'configs' / 'demo'
    out = tmp_path / 'scales.png'
    main(['patch-scales', str(demo / 'retinanet_pvt-mini-dtn-dpn_fpn_shapes.py'), '--out', str(out)])
    assert cv2.imread(str(out)).std() > 10
    with pytest.raises(SystemExit, match='no DualPatchEmbed'):
        main(['patch-scales', str(demo / 'retinanet_pvt-mini_fpn_shapes.py')])
