"""Position embeddings at other sizes."""

import torch

from tests.helpers.compare import assert_near
from tests.reference import resized
from tokennorm.layers.positions import resize_positions


def test_positions_of_pvt_are_bilinear():
    grid = torch.randn(1, 4, 6, 8)
    expected = resized(grid[0], (7, 5))[None]
    assert_near('positions', resize_positions(grid, (7, 5), 'bilinear'), expected)
