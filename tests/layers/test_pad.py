"""Padding of images and grids to whole patches or windows."""

import pytest
import torch
import torch.nn.functional as F

from tokennorm.layers.pad import crop, pad_to_multiple, round_up


@pytest.mark.parametrize(('size', 'shape'), [(4, (8, 12)), ((4, 3), (8, 9)), ((7, 9), (7, 9)), (1, (7, 9))])
def test_zeros_are_at_the_right_and_the_bottom(size, shape):
    x = torch.randn(2, 3, 7, 9)
    padded = pad_to_multiple(x, size)
    assert padded.shape == (2, 3, *shape)
    assert torch.equal(padded, F.pad(x, (0, shape[1] - 9, 0, shape[0] - 7)))
    assert (padded is x) == (shape == (7, 9))
    grid = x.permute(0, 2, 3, 1)
    assert torch.equal(pad_to_multiple(grid, size, channels_last=True), padded.permute(0, 2, 3, 1))
    assert torch.equal(crop(padded.permute(0, 2, 3, 1), 7, 9), grid)


def test_round_up_gives_the_next_multiple():
    assert [round_up(size, 4) for size in (0, 1, 4, 5, 8)] == [0, 4, 4, 8, 8]


def test_an_exported_crop_indexes_on_the_device_of_the_grid():
    class Crop(torch.nn.Module):
        def forward(self, x):
            return crop(x, 7, 9)

    graph = torch.export.export(Crop(), (torch.empty(2, 8, 12, 3, device='meta'),)).graph
    devices = [node.meta['val'].device.type for node in graph.nodes if isinstance(node.meta.get('val'), torch.Tensor)]
    assert set(devices) == {'meta'}
