"""The published layout of PVT."""

import torch

from tokennorm.checkpoints import from_published_pvt


def test_position_embeddings_of_published_pvt_are_split():
    grids = {
        'pos_embed1': torch.ones(1, 2, 8),
        'pos_embed2': torch.arange(50).expand(1, 8, 50).mT,
    }  # 1 x 2 is a grid, 50 a 7 x 7 and a row
    first, second = from_published_pvt(grids).values()
    assert first.shape[1] == 2
    assert second[0, :, 0].tolist() == [*range(1, 50)]
