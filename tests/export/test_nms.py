"""Candidates of exported detectors are ranked by their scores."""

import torch

from tokennorm.export.nms import ranked


def test_the_best_candidates_are_in_order():
    scores = torch.rand(2, 100, generator=torch.Generator().manual_seed(0))
    boxes, best, labels = ranked(scores[..., None].expand(-1, -1, 4), scores, torch.arange(100).expand(2, -1), 60)
    assert torch.equal(best, scores.sort(descending=True).values[:, :60])
    assert torch.equal(boxes, best[..., None].expand(-1, -1, 4))
    assert torch.equal(labels, scores.argsort(descending=True)[:, :60])
