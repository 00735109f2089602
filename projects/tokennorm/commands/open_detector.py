"""`tokennorm.Detector`: a detector in PyTorch or in an exported file, which needs no PyTorch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokennorm.base.environment import import_mmdet
from tokennorm.base.messages import UserError
from tokennorm.commands.checks import check_mapping, path_of
from tokennorm.commands.export import ExportResult, export
from tokennorm.commands.test import EvaluationResult, test
from tokennorm.inference.runtime import BaseDetector, Detections, ExportedDetector


class Detector(BaseDetector):
    """A trained detector, in PyTorch or in a file of `tokennorm export`, as a function of images.

    >>> from tokennorm import Detector
    >>> detector = Detector('work_dirs/demo-control')  # or Detector('retinanet_pvt-t'), Detector('detector.onnx')
    >>> found = detector('image.jpg', score_threshold=0.5)
    >>> found.boxes.shape, found.class_names
    ((2, 4), ['disk', 'star'])

    The heads get as many classes as the checkpoint was trained with, so that the config may name other data. Images are
    resized as in validation.

    Args:
        detector: Work directory of a training run; or the name of a published detector (`tokennorm weights`); or a
            config file or the name of a config, with `checkpoint`; or a checkpoint in a work directory, or one that
            `tokennorm publish` wrote, which has its config and its thresholds inside; or an `.onnx` or `.xml` file of
            `tokennorm export`, which runs on the CPU without PyTorch.
        checkpoint: Checkpoint of a training run with that config, on any data; None is the best one of the work
            directory.
        device: Such as 'cuda:0' or 'cpu'; by default the best one available.
        options: Entries of the config to set, as `{'model.test_cfg.score_thr': 0.0}`.
        tta: Test-time augmentation: merge the boxes of each image and its mirror image, or of the views that the
            `tta_pipeline` of the config has.

    Attributes:
        backend: The `TorchDetector` or `ExportedDetector`, whose attributes this object has, too.
        checkpoint: File or URL of the checkpoint, or the exported file.
        description: One line about it.
        classes: Names of the classes.
        category_ids: Id of each class in the data that the detector was trained with.
        recommended: The score threshold of each class that the training run's report recommends; None without one.
        cfg: The config; not of an exported file, which has `metadata` instead.
        model: mmdet's detector; not of an exported file.

    Raises:
        UserError: for a config, a checkpoint or an exported file that cannot be used.
    """

    def __init__(
        self,
        detector: str | Path,
        checkpoint: str | Path | None = None,
        device: str | None = None,
        options: Mapping[str, Any] | None = None,
        tta: bool = False,
    ) -> None:
        check_mapping('options', options)
        suffix = path_of('detector', detector).suffix
        if suffix == '.pt2':
            raise UserError(f'{detector}: load a .pt2 file with torch.export.load; Detector opens .onnx and .xml')
        if suffix in ('.onnx', '.xml'):
            if checkpoint is not None or tta or options or device not in (None, 'cpu'):
                raise UserError(
                    f'{detector}: an exported file takes no checkpoint, device, options or tta; for another device '
                    'give tokennorm.inference.runtime.ExportedDetector the providers of onnxruntime'
                )
            self.backend: Any = ExportedDetector(detector)
        else:
            import_mmdet()
            from tokennorm.inference.torch_detector import TorchDetector

            self.backend = TorchDetector(detector, checkpoint, device, options, tta)
        self.most_detections = self.backend.most_detections

    def __getattr__(self, name: str) -> Any:
        """Those of the backend, such as `classes`."""
        if name == 'backend' or name.startswith('__'):  # a copy, or an object of a subclass, has none yet
            raise AttributeError(f'{type(self).__name__} has no {name}')
        return getattr(self.backend, name)

    def __repr__(self) -> str:
        return repr(self.backend)

    def detect(self, images: Sequence[np.ndarray], batch_size: int = 1) -> list[Detections]:
        """Returns all detections of images (H, W, 3) uint8 BGR that the config's `test_cfg`, or the file, keeps."""
        return self.backend.detect(images, batch_size)

    @property
    def recommended(self) -> Sequence[float] | None:
        """The score threshold of each class that the training run's report recommends; None without one."""
        return self.backend.recommended

    def test(self, data: str | Path | None = None, **options: Any) -> EvaluationResult:
        """Evaluates its checkpoint as `tokennorm.test` does, with the options of that function."""
        return test(self, data=data, **options)

    def export(self, out: str | Path, **options: Any) -> ExportResult:
        """Writes its checkpoint as one file, .onnx, .pt2 (PyTorch) or .xml (OpenVINO), as `tokennorm export` does.

        The options are keyword arguments: `fp16`, `int8`, `batch_size`, `calibrate`, `license`, `verify`, `split`,
        `thresholds`, `allow`, `strict` and `cfg_options`.
        """
        return export(self, out, **options)
