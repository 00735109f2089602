"""The published layout of PVT."""

import torch

from tokennorm.checkpoints import from_published_pvt


def test_position_embeddings_of_published_pvt_are_split():
    grids = {
        'pos_embed1': torch.ones(1, 2, 8),
        'pos_embed2': torch.ones(1, 50, 8),
    }  # 1 x 2 is a grid, 50 a 7 x 7 and a row
    assert [v.shape[1] for v in from_published_pvt(grids).values()] == [2, 49]
