"""Objects that move through a video keep their ids."""

import numpy as np

from tokennorm.inference.runtime import Detections
from tokennorm.inference.tracking import UNTRACKED, Tracker


def frame(*boxes):
    n = len(boxes)
    boxes = np.array(boxes, np.float32).reshape(-1, 4)
    return Detections(boxes, np.full(n, 0.9, np.float32), np.zeros(n, np.int64), ['car'] * n)


def test_two_objects_that_pass_each_other_keep_their_ids():
    tracker = Tracker(frame_rate=10, lowest_score=0.3)
    ids = []
    for t in range(12):
        left, right = [5 * t, 10, 5 * t + 20, 40], [100 - 5 * t, 60, 120 - 5 * t, 90]
        found = tracker.update(frame(left, right) if t % 2 else frame(right, left))  # the order does not matter
        ids.append(found.track_ids.tolist() if t % 2 else found.track_ids.tolist()[::-1])
        assert [one['track_id'] for one in found.annotations([3])] == found.track_ids.tolist()
    assert ids[0] == [UNTRACKED, UNTRACKED]  # one frame is not a track yet
    assert len({tuple(pair) for pair in ids[2:]}) == 1
    assert len(set(ids[-1])) == 2
    assert UNTRACKED not in ids[-1]
    assert tracker.update(frame()).track_ids.shape == (0,)


def test_an_object_that_appears_takes_no_id_of_another():
    tracker = Tracker(frame_rate=10, lowest_score=0.3)
    old, new = [10, 10, 30, 40], [60, 60, 80, 90]
    ids = [tracker.update(frame(old)).track_ids[0] for _ in range(4)]
    assert ids[-1] != UNTRACKED
    assert tracker.update(frame(new, old)).track_ids.tolist() == [UNTRACKED, ids[-1]]
