"""`TorchDetector`, the public `tokennorm.Detector`: a trained detector as a Python function of images."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from tokennorm.datasets.image_files import read_image
from tokennorm.evaluation.thresholds import read_thresholds
from tokennorm.inference.prediction import open_detector
from tokennorm.published import detector_files

ImageLike = str | PathLike | np.ndarray | Image.Image


@dataclass(frozen=True)
class Detections:
    """The objects that were found in one image, highest score first.

    Attributes:
        boxes: (N, 4) float32, left, top, right and bottom in pixels of the image.
        scores: (N,) float32, between 0 and 1.
        labels: (N,) int64, indices of the classes.
        class_names: The N names.
        masks: (N, H, W) bool; None with a detector that finds boxes only.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    class_names: list[str]
    masks: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    def to_supervision(self) -> Any:
        """Returns the same as `supervision.Detections`; needs `pip install supervision`."""
        import supervision

        return supervision.Detections(
            xyxy=self.boxes,
            confidence=self.scores,
            class_id=self.labels,
            mask=self.masks,
            data=dict(class_name=np.array(self.class_names)),
        )


class TorchDetector:
    """A detector with the weights and the classes of a checkpoint.

    >>> from tokennorm import Detector
    >>> detector = Detector('work_dirs/demo-control')  # or Detector('retinanet_pvt-t'), Detector(config, checkpoint)
    >>> found = detector('image.jpg', score_threshold=0.5)
    >>> found.boxes.shape, found.class_names
    ((2, 4), ['disk', 'star'])

    Args:
        detector: Work directory of a training run; or the name of a published detector (`tokennorm weights`); or a
            config file or the name of a config, with `checkpoint`.
        checkpoint: Checkpoint of a training run with that config, on any data; None is the best one of the work
            directory.
        device: Such as 'cuda:0' or 'cpu'; by default the best one available.

    Attributes:
        checkpoint: File or URL of the checkpoint.
        classes: Names of the classes.

    Raises:
        FileNotFoundError, ValueError, RuntimeError: for a config or a checkpoint that cannot be used.
    """

    def __init__(self, detector: str | Path, checkpoint: str | Path | None = None, device: str | None = None) -> None:
        config, checkpoint = detector_files(detector, checkpoint)
        self._inferencer, _, self.checkpoint = open_detector(config, checkpoint, device)
        self.classes = tuple(self._inferencer.model.dataset_meta['classes'])

    def __call__(
        self, images: ImageLike | Sequence[ImageLike], score_threshold: float | str | Path = 0.3, batch_size: int = 1
    ) -> Detections | list[Detections]:
        """Finds objects.

        Args:
            images: One image or a list of images. An image is a path, a PIL image, or an array (H, W, 3) uint8 with
                channels in the order BGR, as OpenCV reads it; a gray array (H, W) is accepted.
            score_threshold: Detections with a lower score are left out, as are those below the config's `test_cfg`
                (`score_thr`, 0.05 in most). 'best' takes the thresholds of each class that the training run's report
                recommends; a path takes those of that file.
            batch_size: Images per forward pass.

        Returns:
            `Detections` for one image, a list of them for a list.

        Raises:
            ValueError: for an image that cannot be read, or is too narrow to be resized, and for thresholds that
                do not exist.
        """
        thresholds = np.array(read_thresholds(score_threshold, self.checkpoint, self.classes))
        is_list = isinstance(images, list | tuple)
        arrays = [_read(image) for image in (images if is_list else [images])]
        try:
            samples = self._inferencer(arrays, batch_size, return_datasamples=True)['predictions'] if arrays else []
        except cv2.error as error:
            shapes = ', '.join(str(array.shape[:2]) for array in arrays)
            raise ValueError(f'images of sizes {shapes:.200} cannot be resized: {error}') from None
        found = [self._detections(sample.pred_instances.cpu().numpy(), thresholds) for sample in samples]
        return found if is_list else found[0]

    def _detections(self, instances: Any, thresholds: np.ndarray) -> Detections:
        keep = instances.scores >= thresholds[instances.labels]
        labels = instances.labels[keep]
        return Detections(
            boxes=instances.bboxes[keep],
            scores=instances.scores[keep],
            labels=labels,
            class_names=[self.classes[label] for label in labels],
            masks=instances.masks[keep].astype(bool) if 'masks' in instances else None,
        )


def _read(image: ImageLike) -> np.ndarray:
    """An image as (H, W, 3) uint8 BGR."""
    if isinstance(image, Image.Image):
        return np.ascontiguousarray(np.asarray(image.convert('RGB'))[..., ::-1])
    if isinstance(image, np.ndarray):
        if image.ndim == 2 and image.dtype == np.uint8:
            return cv2.cvtColor(image, cv2.COLOR_GRAY2BGR)
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise ValueError(f'an image of shape {image.shape} and {image.dtype} must be (H, W, 3) or (H, W) and uint8')
        return image
    if not isinstance(image, str | PathLike):
        raise ValueError(f'an image must be a path, an array or a PIL image, not {type(image).__name__}')
    array = read_image(image)
    if array is None:
        raise ValueError(f'image {image} not found, or it cannot be decoded')
    return array
