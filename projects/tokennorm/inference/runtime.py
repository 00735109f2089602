"""Runs a detector that `tokennorm export` wrote. This one file needs Python 3.10, numpy, OpenCV and onnxruntime only.

Copy it into a service:

    from runtime import ExportedDetector

    detector = ExportedDetector('model.onnx')
    for found in detector(['image.jpg']):
        print(found.boxes, found.scores, [detector.classes[label] for label in found.labels])

With the package openvino it also reads `.xml` files.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

FORMAT = 1  # of the metadata
SMALLEST_SIDE = 65  # pixels of a batch, unless the metadata has more; smaller images are padded


class ModelFileError(RuntimeError):
    """A model file that cannot be used, with the reason."""


@dataclass
class Detections:
    """What was found on one image, highest scores first.

    Attributes:
        boxes: Corners (x1, y1, x2, y2) in pixels of the image, float32 (N, 4).
        scores: Scores in 0..1, float32 (N,).
        labels: Indices into the detector's `classes`, int64 (N,).
        masks: Pixels of each object, bool (N, H, W); None for a detector without masks.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: np.ndarray | None = None


class ExportedDetector:
    """An exported detector.

    Args:
        path: `.onnx` file, or `.xml` file of OpenVINO, of `tokennorm export`.
        threads: CPU threads; None is the runtime's own choice.
        providers: onnxruntime's execution providers; None is CPU.

    Attributes:
        classes: Names of the classes.
        metadata: Everything else that the file says about itself.

    Raises:
        ModelFileError: for a file that does not exist, is damaged or was not written by `tokennorm export`, and where
            its runtime is not installed.
    """

    def __init__(self, path: str | Path, threads: int | None = None, providers: Sequence[str] | None = None) -> None:
        path = Path(path)
        if not path.is_file():
            raise ModelFileError(f'model file {path} not found')
        open_file = _OpenVino if path.suffix == '.xml' else _OnnxRuntime
        self._session = open_file(path, threads, providers)
        texts = {k.removeprefix('tokennorm.'): v for k, v in self._session.texts.items() if k.startswith('tokennorm.')}
        if 'format' not in texts:
            raise ModelFileError(
                f'{path} was not written by `tokennorm export`: it has no tokennorm.format; write it with that command'
            )
        self.metadata: dict[str, Any] = {key: json.loads(text) for key, text in texts.items()}
        if self.metadata['format'] != FORMAT:
            raise ModelFileError(f'{path} has format {self.metadata["format"]}; this program reads format {FORMAT}')
        self.classes: list[str] = self.metadata['classes']

    def __call__(
        self, images: Sequence[str | Path | np.ndarray], score_threshold: float | str | Sequence[float] = 0.0
    ) -> list[Detections]:
        """Detects objects on a batch of images.

        Args:
            images: Files, or pixels in RGB, uint8 (H, W, 3).
            score_threshold: Lowest score of what is returned, or one per class. 'best' takes those in the file's
                metadata. The model itself leaves out scores below the metadata's `score_threshold`.

        Raises:
            ModelFileError: for 'best', if the file has no thresholds.
            ValueError: for an image that is empty or has other than three channels.
            OSError: for a file that is not a readable image.
        """
        if not len(images):
            return []
        pixels = [read_image(image) if isinstance(image, str | Path) else image for image in images]
        thresholds = self.thresholds(score_threshold)
        inputs = self.inputs_of(pixels)
        found, sizes = self.run(inputs), inputs['sizes']
        return [self._detections(found, i, sizes[i], image.shape[:2], thresholds) for i, image in enumerate(pixels)]

    def inputs_of(self, images: Sequence[str | Path | np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the inputs of `run`, `images` and `sizes`, for a batch of images as `__call__` takes them."""
        prepared = [self._prepare(read_image(one) if isinstance(one, str | Path) else one) for one in images]
        sizes = np.array([image.shape[:2] for image in prepared], dtype=np.int64)
        smallest = self.metadata.get('smallest_side', SMALLEST_SIDE)
        batch = np.zeros((len(prepared), 3, *sizes.max(axis=0).clip(min=smallest)), dtype=np.float32)
        for place, image in zip(batch, prepared, strict=True):
            place[:, : image.shape[0], : image.shape[1]] = image.transpose(2, 0, 1)
        return {'images': batch, 'sizes': sizes}

    def thresholds(self, chosen: float | str | Sequence[float]) -> np.ndarray:
        """Returns the lowest score of each class, as `__call__` takes them."""
        if isinstance(chosen, str) and chosen == 'best':
            chosen = self.metadata.get('thresholds')
            if chosen is None:
                raise ModelFileError('thresholds best: the file has none; give a number or a thresholds.json')
        return np.broadcast_to(np.asarray(chosen, dtype=float), len(self.classes))

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the raw outputs of the model for inputs of `inputs_of`, by name."""
        return self._session.run(inputs)

    def _prepare(self, image: np.ndarray) -> np.ndarray:
        """Resized pixels in the model's order of channels."""
        if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape or image.dtype != np.uint8:
            raise ValueError(
                f'image of shape {image.shape} and {image.dtype} must be RGB, uint8 (height, width, 3) with sides '
                'of at least 1; read files with read_image, and repeat a single channel three times'
            )
        image = cv2.resize(image, resized_shape(image.shape[:2], self.metadata['resize'])[::-1])
        return image[..., ::-1] if self.metadata['color'] == 'BGR' else image

    def _detections(
        self,
        found: dict[str, np.ndarray],
        index: int,
        size: np.ndarray,
        original: tuple[int, int],
        thresholds: np.ndarray,
    ) -> Detections:
        """One image's entries of the outputs, in pixels of the original image."""
        scores = found['scores'][index]
        keep = (scores > 0) & (scores >= thresholds[found['labels'][index]])
        scale = np.array([original[1] / size[1], original[0] / size[0]] * 2, dtype=np.float32)
        boxes = found['boxes'][index][keep] * scale
        masks = None
        if 'masks' in found:
            threshold = self.metadata['mask_threshold']
            masks = np.zeros((len(boxes), *original), dtype=bool)
            for place, box, mask in zip(masks, boxes, found['masks'][index][keep], strict=True):
                paste_mask(place, box, mask, threshold)
        return Detections(boxes, scores[keep], found['labels'][index][keep], masks)


class _OnnxRuntime:
    """A model in onnxruntime; `texts` is its metadata."""

    def __init__(self, path: Path, threads: int | None, providers: Sequence[str] | None) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise ModelFileError(f'{path} needs onnxruntime: pip install onnxruntime') from None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=list(providers or ['CPUExecutionProvider'])
            )
        except Exception as error:  # onnxruntime's exceptions share no base class
            reason = str(error).strip().splitlines()[0]
            raise ModelFileError(
                f'{path} cannot be loaded by onnxruntime {onnxruntime.__version__}: {reason}'
            ) from None
        self.texts: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))


class _OpenVino:
    """A model in OpenVINO on the CPU; `texts` is its metadata."""

    def __init__(self, path: Path, threads: int | None, providers: Sequence[str] | None) -> None:
        try:
            import openvino
        except ImportError:
            raise ModelFileError(f'{path} needs openvino: pip install openvino') from None
        core = openvino.Core()
        # float32: on some CPUs OpenVINO computes in bfloat16 unless told otherwise.
        settings: dict[str, Any] = {'INFERENCE_PRECISION_HINT': 'f32'}
        if threads is not None:
            settings['INFERENCE_NUM_THREADS'] = threads
        try:
            model = core.read_model(path)
            self._compiled = core.compile_model(model, 'CPU', settings)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ModelFileError(f'{path} cannot be loaded by openvino {openvino.__version__}: {reason}') from None
        info = model.get_rt_info(['tokennorm']).astype(dict) if model.has_rt_info(['tokennorm']) else {}
        self.texts = {f'tokennorm.{key}': value.astype(str) for key, value in info.items()}

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {output.any_name: value for output, value in self._compiled(inputs).items()}


def read_image(path: str | Path) -> np.ndarray:
    """Reads an image file as RGB, uint8 (H, W, 3), turned upright as its EXIF tag says.

    Raises:
        OSError: for a file that is not a readable image.
    """
    try:  # unlike imread, imdecode refuses a file that is cut off
        image = cv2.imdecode(np.frombuffer(Path(path).read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        image = None
    if image is None:
        raise OSError(f'{path} is not a readable image')
    return image[..., ::-1]


def resized_shape(shape: tuple[int, int], rule: dict[str, Any] | None) -> tuple[int, int]:
    """Returns the height and width that an image of this height and width gets.

    The rule has a `scale`, a width and a height, and `keep_ratio`: fit into the scale, in either orientation, without
    distortion. None does not resize.
    """
    if rule is None:
        return shape
    if not rule['keep_ratio']:
        return rule['scale'][1], rule['scale'][0]
    longest, shortest = max(rule['scale']), min(rule['scale'])
    factor = min(longest / max(shape), shortest / min(shape))
    return max(int(shape[0] * factor + 0.5), 1), max(int(shape[1] * factor + 0.5), 1)


def paste_mask(place: np.ndarray, box: np.ndarray, mask: np.ndarray, threshold: float) -> None:
    """Writes an object's pixels into an image, bool (H, W): bilinear from the probabilities (h, w) within its box.

    The box is x1, y1, x2, y2 in pixels of the image; around it there are no pixels of the object. `threshold` is the
    least probability.
    """
    x1, y1, x2, y2 = box.astype(np.float64)
    left, top = max(int(np.floor(x1)) - 1, 0), max(int(np.floor(y1)) - 1, 0)
    right, bottom = min(int(np.ceil(x2)) + 1, place.shape[1]), min(int(np.ceil(y2)) + 1, place.shape[0])
    if x2 <= x1 or y2 <= y1 or right <= left or bottom <= top:
        return
    rows = _cells(np.arange(top, bottom), y1, y2, mask.shape[0])
    columns = _cells(np.arange(left, right), x1, x2, mask.shape[1])
    place[top:bottom, left:right] = rows @ mask @ columns.T >= threshold


def _cells(pixels: np.ndarray, start: float, stop: float, cells: int) -> np.ndarray:
    """Weights of a mask's cells, which lie between `start` and `stop`, in each pixel: (pixels, cells)."""
    at = (pixels + 0.5 - start) / (stop - start) * cells - 0.5
    return (1 - np.abs(at[:, None] - np.arange(cells))).clip(min=0)


def run_lengths(mask: np.ndarray) -> dict[str, Any]:
    """COCO's uncompressed run lengths of a mask, bool (H, W): column by column, zeros first."""
    flat = mask.ravel(order='F')
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    counts = np.diff(np.concatenate([[0], changes, [flat.size]])).tolist()
    return dict(size=list(mask.shape), counts=[0, *counts] if flat[0] else counts)


def coco_annotations(found: Detections, category_ids: Sequence[int]) -> list[dict[str, Any]]:
    """Detections of one image in COCO's format, without `id` and `image_id`."""
    annotations = []
    for i, (box, score, label) in enumerate(zip(found.boxes, found.scores, found.labels, strict=True)):
        x1, y1, x2, y2 = (float(value) for value in box)
        annotation = dict(
            category_id=category_ids[label],
            bbox=[round(value, 2) for value in (x1, y1, x2 - x1, y2 - y1)],
            area=round((x2 - x1) * (y2 - y1), 2),
            iscrowd=0,
            score=round(float(score), 5),
        )
        if found.masks is not None:
            annotation['segmentation'] = run_lengths(found.masks[i])
        annotations.append(annotation)
    return annotations


def draw(image: np.ndarray, found: Detections, classes: Sequence[str], lowest: float) -> np.ndarray:
    """Draws boxes with names and scores of at least `lowest`, and masks, on an image (H, W, 3) RGB."""
    picture = np.array(image, order='C')
    shown = found.scores >= lowest
    for mask in found.masks[shown] if found.masks is not None else ():
        picture[mask] = picture[mask] // 2 + np.array([0, 100, 60], dtype=np.uint8)
    for box, score, label in zip(found.boxes[shown], found.scores[shown], found.labels[shown], strict=True):
        x1, y1, x2, y2 = (int(value) for value in box)
        cv2.rectangle(picture, (x1, y1), (x2, y2), (0, 200, 120), 2)
        cv2.putText(picture, f'{classes[label]} {score:.2f}', (x1 + 3, y1 + 12), 0, 0.4, (255, 60, 0))
    return picture
