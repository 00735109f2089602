"""Objects that move through a video keep their ids."""

import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

from tokennorm.inference.tracking import UNTRACKED, Tracker


def frame(*boxes):
    return DetDataSample(
        pred_instances=InstanceData(
            bboxes=torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
            scores=torch.full((len(boxes),), 0.9),
            labels=torch.zeros(len(boxes), dtype=torch.long),
        )
    )


def test_two_objects_that_pass_each_other_keep_their_ids():
    tracker = Tracker(frame_rate=10, lowest_score=0.3)
    ids = []
    for t in range(12):
        left, right = [5 * t, 10, 5 * t + 20, 40], [100 - 5 * t, 60, 120 - 5 * t, 90]
        sample = frame(left, right) if t % 2 else frame(right, left)  # the order does not matter
        tracker.update(sample)
        found = sample.pred_instances.track_ids.tolist()
        ids.append(found if t % 2 else found[::-1])
    assert ids[0] == [UNTRACKED, UNTRACKED]  # one frame is not a track yet
    assert len({tuple(pair) for pair in ids[2:]}) == 1
    assert len(set(ids[-1])) == 2
    assert UNTRACKED not in ids[-1]
    sample = frame()
    tracker.update(sample)
    assert sample.pred_instances.track_ids.shape == (0,)
