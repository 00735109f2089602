"""Ids of objects across the frames of a video: ByteTrack (Zhang et al., 2022) of the package trackers."""

from dataclasses import replace

import numpy as np

from tokennorm.base.messages import UserError
from tokennorm.inference.runtime import Detections

UNTRACKED = -1


class Tracker:
    """Gives detections of successive frames their ids.

    Args:
        frame_rate: Frames per second that `update` is called for.
        lowest_score: Lowest score that begins a track. ByteTrack also uses detections below it, to continue one.
    """

    def __init__(self, frame_rate: float, lowest_score: float) -> None:
        try:
            from trackers import ByteTrackTracker
        except ImportError:
            raise UserError('tracking needs the package trackers: pip install trackers supervision') from None
        self._tracker = ByteTrackTracker(
            frame_rate=frame_rate, track_activation_threshold=lowest_score, high_conf_det_threshold=lowest_score
        )

    def update(self, found: Detections) -> Detections:
        """Returns the detections of the next frame with `track_ids`; -1 is not tracked."""
        detections = replace(found, masks=None).to_supervision()  # copies of masks would take time
        detections.data['index'] = np.arange(len(found))
        tracked = self._tracker.update(detections)
        ids = np.full(len(found), UNTRACKED)
        if len(tracked):
            ids[tracked.data['index']] = tracked.tracker_id
        return replace(found, track_ids=ids)
