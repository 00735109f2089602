"""Runs a detector that `tokennorm export` wrote. It needs Python 3.10, numpy, OpenCV and onnxruntime only.

A service without the package has this file, the decoder and their errors in their folders,
`tokennorm/inference/runtime.py`, `tokennorm/images/pixels.py` and `tokennorm/base/messages.py`; `Detections.draw` needs
`images/drawing.py` and `base/console.py`, too:

    from tokennorm.inference.runtime import ExportedDetector

    detector = ExportedDetector('model.onnx')
    for found in detector(['a.jpg', 'b.jpg']):
        print(found.boxes, found.scores, found.class_names)

With the package openvino it also reads `.xml` files.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from tokennorm.base.messages import UserError
from tokennorm.images.pixels import ImageError, as_pixels

FORMAT = 1  # of the metadata
THRESHOLDS = 'thresholds.json'  # of a training run, next to its checkpoints
LEAST_SIDE = 320  # pixels of a drawn image; smaller ones are enlarged by an integer
SMALLEST_SIDE = 65  # pixels of a resized image, in files whose metadata has no `smallest_side`


class ModelFileError(UserError):
    """A model file that cannot be used, with the reason."""


class ThresholdError(UserError, ValueError):
    """Score thresholds that do not exist or cannot be used, with the reason."""


@dataclass(frozen=True)
class Detections:
    """The objects that were found in one image, highest score first.

    Attributes:
        boxes: (N, 4) float32, left, top, right and bottom in pixels of the image.
        scores: (N,) float32, between 0 and 1.
        labels: (N,) int64, indices of the classes.
        class_names: The N names.
        masks: (N, H, W) bool; None with a detector that finds boxes only.
        track_ids: (N,) int64, ids of objects across the frames of a video; None without tracking.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    class_names: list[str]
    masks: np.ndarray | None = None
    track_ids: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    def select(self, keep: np.ndarray) -> 'Detections':
        """Returns the detections of a boolean mask, (N,), or of indices, in their order."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: value[keep] for name, value in values.items() if isinstance(value, np.ndarray)}
        return replace(
            self, class_names=[self.class_names[i] for i in np.arange(len(self.class_names))[keep]], **arrays
        )

    def annotations(self, category_ids: Sequence[int]) -> list[dict[str, Any]]:
        """Returns them in COCO's format, without `id` and `image_id`; `category_ids` has the id of each class."""
        annotations = []
        for i, (x1, y1, x2, y2) in enumerate(self.boxes.tolist()):
            annotation: dict[str, Any] = dict(
                category_id=category_ids[self.labels[i]],
                bbox=[round(value, 2) for value in (x1, y1, x2 - x1, y2 - y1)],
                area=round((x2 - x1) * (y2 - y1), 2) if self.masks is None else int(self.masks[i].sum()),
                iscrowd=0,
                score=round(float(self.scores[i]), 5),
            )
            if self.masks is not None:
                annotation['segmentation'] = run_lengths(self.masks[i])
            if self.track_ids is not None:
                annotation['track_id'] = int(self.track_ids[i])
            annotations.append(annotation)
        return annotations

    def draw(self, image: Any, same_size: bool = False) -> 'Drawing':
        """Draws boxes, masks, names, scores and ids of tracks on a copy of their image, which a notebook shows.

        Images below 320 pixels are enlarged, and a legend of many objects is below the image.

        Args:
            image: As the detector takes it.
            same_size: Keep the size of the image; a legend is on its last rows.

        Returns:
            (H, W, 3) uint8 BGR, for `cv2.imwrite`.
        """
        from tokennorm.images.drawing import color_of, draw, draw_resized

        pixels, found = as_pixels(image), self.select(np.argsort(self.scores, kind='stable'))  # the best ones on top
        notes = [f'{score:.2f}' for score in found.scores]
        for i, track in enumerate(found.track_ids if found.track_ids is not None else ()):
            notes[i] += f' #{track}' if track >= 0 else ''
        masks, colors = () if found.masks is None else found.masks, [color_of(label) for label in found.labels]
        rest = found.class_names, colors, masks, notes
        if same_size:
            return draw(pixels, found.boxes, *rest).view(Drawing)
        long = max(pixels.shape[:2])
        return draw_resized(pixels, long * -(-LEAST_SIDE // long), found.boxes, *rest).view(Drawing)

    def to_supervision(self) -> Any:
        """Returns the same as `supervision.Detections`; needs `pip install supervision`."""
        import supervision

        return supervision.Detections(
            xyxy=self.boxes,
            confidence=self.scores,
            class_id=self.labels,
            mask=self.masks,
            tracker_id=self.track_ids,
            data=dict(class_name=np.array(self.class_names)),
        )


class Drawing(np.ndarray):
    """An image (H, W, 3) uint8 BGR that a notebook shows."""

    def _repr_png_(self) -> bytes | None:
        is_image = (
            self.ndim == 3 and self.shape[2] == 3 and self.size and self.dtype == np.uint8
        )  # arithmetic keeps the class
        return cv2.imencode('.png', self)[1].tobytes() if is_image else None


class BaseDetector:
    """What a detector in PyTorch and one in an exported file have in common.

    Attributes:
        classes: Names of the classes.
        category_ids: Id of each class in the data that the detector was trained with.
        most_detections: Most detections of an image, of which others are dropped; None if it is not known.
    """

    classes: tuple[str, ...]
    category_ids: list[int]
    most_detections: int | None = None
    description: str

    def _shown(self, place: str) -> str:
        """A line for `repr`."""
        names = ', '.join(self.classes[:5]) + (', ...' if len(self.classes) > 5 else '')
        number = f'{len(self.classes)} class{"es" * (len(self.classes) != 1)}'
        return f'<Detector {self.description}; {number}: {names}; on {place}>'

    def __call__(
        self, images: Any, score_threshold: float | str | Path | Sequence[float] = 0.3, batch_size: int = 1
    ) -> Detections | list[Detections]:
        """Finds objects.

        Args:
            images: One image or a list of images. An image is a path, a PIL image, or an array (H, W, 3) uint8 with
                channels in the order BGR, as OpenCV reads it; a gray array (H, W) is accepted. Arrays of Pillow,
                matplotlib and torchvision are RGB: reverse their last axis.
            score_threshold: Detections with a lower score are left out, as are those below the config's `test_cfg`
                (`score_thr`, 0.05 in most). 'best' takes the thresholds of each class that the training run's report
                recommends; a path takes those of that file; a list has one per class.
            batch_size: Images per forward pass. Only images of one size share a pass: padding next to a smaller image
                would change its detections.

        Returns:
            `Detections` for one image, a list of them for a list.

        Raises:
            ImageError: a UserError and ValueError, for an image that cannot be read or resized.
            ThresholdError: a UserError and ValueError, for thresholds that do not exist.
            ValueError: for a batch size that is not an integer of at least 1.
        """
        lowest = self.thresholds(score_threshold)
        is_list = isinstance(images, list | tuple)
        pixels = [as_pixels(image) for image in (images if is_list else [images])]
        found = [one.select(one.scores >= lowest[one.labels]) for one in self.detect(pixels, batch_size)]
        return found if is_list else found[0]

    def detect(self, images: Sequence[np.ndarray], batch_size: int = 1) -> list[Detections]:
        """Returns all detections of images (H, W, 3) uint8 BGR."""
        raise NotImplementedError

    def thresholds(self, chosen: float | str | Path | Sequence[float]) -> np.ndarray:
        """Returns the lowest score of each class, (classes,), as `__call__` takes them. A number may be text."""
        lowest: Any = chosen
        if isinstance(chosen, str) and chosen == 'best':
            lowest = self.recommended
            if lowest is None:
                raise ThresholdError(
                    f'score thresholds best: there are none for this file; training notes them in its best checkpoint, '
                    f'and `tokennorm test --report` writes a {THRESHOLDS}; name that file, or give a number'
                )
        elif isinstance(chosen, str | PathLike):
            try:
                lowest = float(chosen)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                lowest = read_thresholds(chosen, self.classes)
        try:
            lowest = np.broadcast_to(np.asarray(lowest, dtype=float), len(self.classes))
        except (TypeError, ValueError):
            raise ThresholdError(
                f'score threshold {chosen!r} must be best, a number, a file, or {len(self.classes)} numbers'
            ) from None
        if not ((lowest >= 0) & (lowest <= 1)).all():
            raise ThresholdError(f'score threshold {chosen} must be from 0 to 1')
        return lowest

    @property
    def recommended(self) -> Sequence[float] | None:
        """The score threshold of each class that the training run's report recommends, if there are any."""
        return None

    def detections(
        self, boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, masks: np.ndarray | None
    ) -> Detections:
        """Returns the detections with the names of their classes."""
        return Detections(boxes, scores, labels, [self.classes[label] for label in labels], masks)


class ExportedDetector(BaseDetector):
    """An exported detector. A copy in another process, as `multiprocessing` sends it, opens the file again.

    Args:
        path: `.onnx` file, or `.xml` file of OpenVINO, of `tokennorm export`.
        threads: CPU threads; None is the runtime's own choice.
        providers: onnxruntime's execution providers; None is CPU.

    Attributes:
        metadata: Everything that the file says about itself.
        checkpoint: The file.
        description: One line about it.

    Raises:
        ModelFileError: for a file that does not exist, is damaged or was not written by `tokennorm export`, and where
            its runtime is not installed.
    """

    def __init__(self, path: str | Path, threads: int | None = None, providers: Sequence[str] | None = None) -> None:
        path = Path(path).expanduser()
        if not path.is_file():
            raise ModelFileError(f'model file {path} not found')
        open_file = _OpenVino if path.suffix == '.xml' else _OnnxRuntime
        self._session = open_file(path, threads, providers)
        texts = {k.removeprefix('tokennorm.'): v for k, v in self._session.texts.items() if k.startswith('tokennorm.')}
        if 'format' not in texts:
            raise ModelFileError(
                f'{path} was not written by `tokennorm export`: it has no tokennorm.format; write it with that command'
            )
        self._use({key: json.loads(text) for key, text in texts.items()})
        if self.metadata['format'] != FORMAT:
            raise ModelFileError(f'{path} has format {self.metadata["format"]}; this program reads format {FORMAT}')

        self.checkpoint = str(path)
        self.description = f'{path}, made with {self.metadata.get("config")}'

    def __repr__(self) -> str:
        return self._shown(self._session.place)

    def _use(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata
        self.classes, self.category_ids = tuple(metadata['classes']), metadata['category_ids']
        self.most_detections = metadata.get('max_detections')  # files of version 1.2 and earlier do not say it

    def detect(self, images: Sequence[np.ndarray], batch_size: int = 1) -> list[Detections]:
        """Returns all detections of images (H, W, 3) uint8 BGR; the file leaves out scores below `score_threshold`."""
        found: list[Any] = [None] * len(images)
        shapes = [resized_shape(image.shape[:2], self.metadata['resize']) for image in images]
        for batch in batches_of_one_shape(shapes, batch_size, self.metadata.get('batch_size')):
            inputs = self.inputs_of([images[i] for i in batch])
            outputs = self.run(inputs)
            for place, i in enumerate(batch):
                one = {name: values[place] for name, values in outputs.items()}
                found[i] = self._detections(one, inputs['sizes'][place], images[i].shape[:2])
        return found

    def inputs_of(self, images: Sequence[Any]) -> dict[str, np.ndarray]:
        """Returns the inputs of `run`, `images` and `sizes`, for a batch of images as `__call__` takes them.

        Raises:
            ImageError: for an image that is smaller than the file allows after it is resized.
        """
        prepared = [self._prepare(as_pixels(image)) for image in images]
        sizes = np.array([image.shape[:2] for image in prepared], dtype=np.int64)
        batch = np.zeros((len(prepared), 3, *sizes.max(axis=0)), dtype=np.float32)
        for place, image in zip(batch, prepared, strict=True):
            place[:, : image.shape[0], : image.shape[1]] = image.transpose(2, 0, 1)
        return {'images': batch, 'sizes': sizes}

    @property
    def recommended(self) -> Sequence[float] | None:
        """Those in the metadata."""
        return self.metadata.get('thresholds')

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the raw outputs of the model for inputs of `inputs_of`, by name."""
        return self._session.run(inputs)

    def _prepare(self, image: np.ndarray) -> np.ndarray:
        """Returns the resized pixels in the model's order of channels."""
        height, width = resized_shape(image.shape[:2], self.metadata['resize'])
        smallest = self.metadata.get('smallest_side', SMALLEST_SIDE)
        if min(height, width) < smallest:
            raise ImageError(
                f'an image of {image.shape[1]} x {image.shape[0]} pixels is resized to {width} x {height}; this file '
                f'takes sides of at least {smallest}'
            )
        image = cv2.resize(image, (width, height))
        return image if self.metadata['color'] == 'BGR' else image[..., ::-1]

    def _detections(self, outputs: dict[str, np.ndarray], size: np.ndarray, original: tuple[int, int]) -> Detections:
        """Returns the detections of one image's outputs, in pixels of the original image."""
        scores = outputs['scores']
        keep = scores > 0
        scale = np.array([original[1] / size[1], original[0] / size[0]] * 2, dtype=np.float32)
        boxes = outputs['boxes'][keep] * scale
        masks = None
        if 'masks' in outputs:
            threshold = self.metadata['mask_threshold']
            masks = np.zeros((len(boxes), *original), dtype=bool)
            for place, box, mask in zip(masks, boxes, outputs['masks'][keep], strict=True):
                paste_mask(place, box, mask, threshold)
        if 'mask_logits' in outputs:
            masks = np.zeros((len(boxes), *original), dtype=bool)
            for place, logits in zip(masks, outputs['mask_logits'][keep], strict=True):
                place[:] = self._whole_mask(logits, size, original)
        return self.detections(boxes, scores[keep], outputs['labels'][keep], masks)

    def _whole_mask(self, logits: np.ndarray, size: np.ndarray, original: tuple[int, int]) -> np.ndarray:
        """Returns an object's pixels in the image, bool (H, W), from logits (h, w) of the canvas, as mmdet does."""
        threshold, stride = self.metadata['mask_threshold'], self.metadata['mask_stride']
        canvas = cv2.resize(logits, None, fx=stride, fy=stride)
        sides = [
            int(np.ceil(side * (1 / (new / old)))) for side, new, old in zip(canvas.shape, size, original, strict=True)
        ]
        enlarged = cv2.resize(canvas, sides[::-1])[: original[0], : original[1]]
        return enlarged > np.log(threshold / (1 - threshold))


class _Session:
    """A model in a runtime. Pickled, it is the arguments that open it."""

    def __init__(self, path: Path, threads: int | None, providers: Sequence[str] | None) -> None:
        self._arguments = path.absolute(), threads, providers

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


class _OnnxRuntime(_Session):
    """A model in onnxruntime; `texts` is its metadata."""

    def __init__(self, path: Path, threads: int | None, providers: Sequence[str] | None) -> None:
        super().__init__(path, threads, providers)
        try:
            import onnxruntime
        except ImportError:
            raise ModelFileError(f'{path} needs onnxruntime: pip install onnxruntime') from None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # files of version 1.1 and earlier warn
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
        self.place = f'onnxruntime, {self._session.get_providers()[0]}'
        self.texts: dict[str, str] = self._session.get_modelmeta().custom_metadata_map
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self._names, self._session.run(self._names, inputs), strict=True))


class _OpenVino(_Session):
    """A model in OpenVINO on the CPU; `texts` is its metadata."""

    place = 'openvino, CPU'

    def __init__(self, path: Path, threads: int | None, providers: Sequence[str] | None) -> None:
        super().__init__(path, threads, providers)
        try:
            import openvino
        except ImportError:
            raise ModelFileError(f'{path} needs openvino: pip install openvino') from None
        core = _openvino_core()
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
        request = self._compiled.create_infer_request()  # of this call only: others may run in other threads
        # An output may have the names of layers, too.
        return {name: value for output, value in request.infer(inputs).items() for name in output.get_names()}


@cache
def _openvino_core() -> Any:
    """OpenVINO's `Core`, one for the process, which is never deleted.

    The CPU plugin of a deleted one puts back the stack for signal handlers that was there before it. Of two that end in
    the order in which they began, this is the memory of the first, which is gone: the next signal, such as Ctrl+C, ends
    the process with a segmentation fault.
    """
    import openvino

    return openvino.Core()


def thresholds_of(checkpoint: str | PathLike) -> Path | None:
    """Returns the `thresholds.json` next to a checkpoint; None without one, or if it is that of another checkpoint."""
    path = Path(checkpoint).with_name(THRESHOLDS)
    if not path.is_file():
        return None
    with suppress(ValueError, AttributeError):  # of a damaged file, which `read_thresholds` names
        made_for = json.loads(path.read_text(encoding='utf-8')).get('checkpoint')
        return path if made_for is None or Path(made_for).name == Path(checkpoint).name else None
    return path


def read_thresholds(path: str | PathLike, classes: Sequence[str]) -> list[float]:
    """Reads a `thresholds.json`: the lowest score of each class that counts as a detection.

    Raises:
        ThresholdError: for a file that does not exist or has not a number from 0 to 1 for each class.
    """
    try:
        known = json.loads(Path(path).read_text(encoding='utf-8'))['classes']
        lowest = [known[name] for name in classes]
        if wrong := [value for value in lowest if type(value) not in (int, float) or not 0 <= value <= 1]:
            raise ValueError(f'{wrong[0]!r} is not a number from 0 to 1')
        return lowest
    except FileNotFoundError:
        raise ThresholdError(f'score thresholds {path} not found; give best, a number or a {THRESHOLDS}') from None
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise ThresholdError(f'{path} has no score threshold of each class ({type(error).__name__}: {error})') from None


def batches_of_one_shape(
    shapes: Sequence[tuple[int, ...]], batch_size: int, most: int | None = None
) -> Iterator[list[int]]:
    """Yields the indices of at most `batch_size` images of one shape, until each image has had its turn.

    `most` is the largest batch that the detector takes; None is any.
    """
    if not isinstance(batch_size, Integral) or batch_size < 1:
        raise ValueError(f'batch_size={batch_size!r} must be an integer of at least 1')
    batch_size = min(batch_size, most or batch_size)
    by_shape = defaultdict(list)
    for i, shape in enumerate(shapes):
        by_shape[shape].append(i)
    for indices in by_shape.values():
        for start in range(0, len(indices), batch_size):
            yield indices[start : start + batch_size]


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
    """Returns COCO's compressed run lengths of a mask, bool (H, W): column by column, zeros first, as pycocotools."""
    flat = np.concatenate([[False], mask.ravel(order='F').astype(bool)])  # a run of zeros comes first, if an empty one
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    counts = np.diff(np.concatenate([[0], changes, [mask.size]])).tolist()
    text = []
    for i, count in enumerate(counts):
        value = count - counts[i - 2] if i > 2 else count
        more = True
        while more:  # 5 bits per character, the lowest first; the sixth bit says that another one follows
            bits, value = value & 0x1F, value >> 5
            more = value != -1 if bits & 0x10 else value != 0
            text.append(chr(bits + 0x20 * more + 48))
    return dict(size=list(mask.shape), counts=''.join(text))
