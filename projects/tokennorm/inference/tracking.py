"""Ids of objects across the frames of a video: ByteTrack (Zhang et al., 2022) of the package trackers."""

import cv2
import numpy as np
import torch
from mmdet.structures import DetDataSample

UNTRACKED = -1


class Tracker:
    """Gives detections of successive frames their ids.

    Args:
        frame_rate: Frames per second that `update` is called for.
        lowest_score: Lowest score that begins a track. ByteTrack also uses detections below it, to continue one.
    """

    def __init__(self, frame_rate: float, lowest_score: float) -> None:
        try:
            import supervision
            from trackers import ByteTrackTracker
        except ImportError:
            raise ImportError('tracking needs the package trackers: pip install trackers supervision') from None
        self._detections = supervision.Detections
        self._tracker = ByteTrackTracker(
            frame_rate=frame_rate, track_activation_threshold=lowest_score, high_conf_det_threshold=lowest_score
        )

    def update(self, sample: DetDataSample) -> None:
        """Adds `track_ids`, int (N,), to the detections of the next frame; -1 is not tracked."""
        instances = sample.pred_instances
        detections = self._detections(
            xyxy=instances.bboxes.cpu().numpy(),
            confidence=instances.scores.cpu().numpy(),
            class_id=instances.labels.cpu().numpy(),
            data=dict(index=np.arange(len(instances))),
        )
        tracked = self._tracker.update(detections)
        ids = torch.full((len(instances),), UNTRACKED, device=instances.bboxes.device)
        if len(tracked):
            ids[torch.from_numpy(tracked.data['index'])] = torch.from_numpy(tracked.tracker_id.astype(np.int64)).to(ids)
        instances.track_ids = ids


def draw_tracks(picture: np.ndarray, sample: DetDataSample, score_thr: float) -> np.ndarray:
    """Writes the id of each track next to its box, on an image (H, W, 3) uint8 BGR with boxes."""
    found = sample.pred_instances
    picture = np.ascontiguousarray(picture)
    for box, score, number in zip(found.bboxes.tolist(), found.scores.tolist(), found.track_ids.tolist(), strict=True):
        if score >= score_thr and number != UNTRACKED:
            at = int(box[0]) + 2, int(box[3]) - 4
            cv2.putText(picture, f'#{number}', at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, (0, 0, 0), 3)
            cv2.putText(picture, f'#{number}', at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1)
    return picture
