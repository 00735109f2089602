"""A contact sheet of the first training batches as the network receives them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from tokennorm.checkpoints.reading import common_meta
from tokennorm.datasets.drawing import tile
from tokennorm.drawing import color_of, draw
from tokennorm.engine.distributed import unwrapped
from tokennorm.files import write_atomically
from tokennorm.registry import HOOKS

FILE = 'train_batches.jpg'
LONG_SIDE = 320  # pixels of a drawn image
WHITE = (255, 255, 255)


@HOOKS.register_module()
class TrainBatchesHook(Hook):
    """Draws the first training images into the work directory, `train_batches.jpg`, with boxes, masks and classes.

    They are what the data preprocessor gives to the network: after augmentation, resizing and padding, with the
    normalization undone. Nothing is read or drawn at random for them. A sheet that cannot be made is left out with a
    warning, and a resumed run keeps its first one.

    Args:
        num_images: Images on the sheet, from as many batches as needed, at most those of an epoch.
    """

    def __init__(self, num_images: int = 16) -> None:
        self.num_images = num_images
        self.tiles: list[np.ndarray] = []
        self._handle: Any = None  # of torch's hook

    def before_train(self, runner: Runner) -> None:
        """Has the data preprocessor pass its output on, in rank 0."""
        preprocessor = getattr(unwrapped(runner.model), 'data_preprocessor', None)
        if is_main_process() and isinstance(preprocessor, nn.Module) and not (Path(runner.work_dir) / FILE).is_file():
            names = common_meta(getattr(runner.train_dataloader.dataset, 'metainfo', None)).get('classes') or ()
            self.runner, self.names = runner, names
            self._handle = preprocessor.register_forward_hook(self._collect)

    def after_train_epoch(self, runner: Runner) -> None:
        self._write(runner)

    def _collect(self, preprocessor: nn.Module, _: Any, batch: Any) -> None:
        if not preprocessor.training:
            return
        try:
            self.tiles += draw_batch(preprocessor, batch, self.names)
        except Exception as error:  # an unusual batch
            self._warn(self.runner, error)
        if len(self.tiles) >= self.num_images:
            self._write(self.runner)

    def _write(self, runner: Runner) -> None:
        """Writes the sheet, if there is anything to draw; no more is collected."""
        if self._handle is None:
            return
        self._handle.remove()
        self._handle, tiles = None, self.tiles[: self.num_images]
        self.tiles = []
        try:
            if tiles:
                sheet = tile(tiles, columns=min(4, len(tiles)))
                content = cv2.imencode('.jpg', sheet, [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
                write_atomically(Path(runner.work_dir) / FILE, content.tobytes())
        except (OSError, cv2.error) as error:
            self._warn(runner, error)

    def _warn(self, runner: Runner, error: Exception) -> None:
        runner.logger.warning(f'{FILE} was not written ({type(error).__name__}: {error})')
        if self._handle is not None:
            self._handle.remove()
        self._handle, self.tiles = None, []


def draw_batch(preprocessor: nn.Module, batch: Mapping[str, Any], names: Any = ()) -> Iterator[np.ndarray]:
    """Draws the output of a data preprocessor: images (H, W, 3) uint8 BGR with boxes, masks and class names.

    A batch without one tensor of three channels, such as that of a semi-supervised detector, gives none.
    """
    inputs = batch.get('inputs') if isinstance(batch, Mapping) else None
    if isinstance(inputs, Tensor) and inputs.dim() == 4 and inputs.shape[1] == 3:
        samples = batch.get('data_samples') or [None] * len(inputs)
        for pixels, sample in zip(undo_normalization(preprocessor, inputs), samples, strict=True):
            yield _draw_sample(pixels, sample, names)


def undo_normalization(preprocessor: nn.Module, inputs: Tensor) -> np.ndarray:
    """Returns the inputs of a network as images, (B, H, W, 3) uint8 BGR; (B, 3, H, W) normalized by a preprocessor."""
    x = inputs.detach().float().cpu()
    if getattr(preprocessor, '_enable_normalize', False):  # of mmengine's and of mmpretrain's, 0.10.12 and 1.3.6
        mean, std = (torch.as_tensor(getattr(preprocessor, key)).float().cpu() for key in ('mean', 'std'))
        x = x * std.view(1, -1, 1, 1) + mean.view(1, -1, 1, 1)
    x = x.round().clamp(0, 255).byte()
    if getattr(preprocessor, '_channel_conversion', False) or getattr(preprocessor, 'to_rgb', False):
        x = x.flip(1)
    return x.permute(0, 2, 3, 1).numpy()


def _draw_sample(pixels: np.ndarray, sample: Any, names: Any) -> np.ndarray:
    """Draws the objects of one image, or the class of a classifier's."""
    height, width = pixels.shape[:2]
    scale = LONG_SIDE / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    boxes, texts, colors, masks = [np.zeros((0, 4))], [], [], []
    for key in ('gt_instances', 'ignored_instances'):
        found = getattr(sample, key, None)
        corners = _numbers(getattr(found, 'bboxes', None))
        if corners is None or corners.shape[1:] != (4,):  # none, or rotated boxes
            continue
        labels = _numbers(getattr(found, 'labels', None))
        boxes.append(corners * [*size, *size] / [width, height, width, height])
        ignored = key == 'ignored_instances'
        labels = np.zeros(len(corners)) if labels is None else labels
        texts += ['ignored' if ignored else _name(names, label) * (len(names) != 1) for label in labels]
        colors += [WHITE if ignored else color_of(label) for label in labels]
        bitmaps = getattr(found, 'masks', None)
        bitmaps = [None] * len(corners) if bitmaps is None else bitmaps.to_ndarray()
        masks += [None if one is None else cv2.resize(one.astype(np.uint8), size) > 0 for one in bitmaps]
    if (labels := _numbers(getattr(sample, 'gt_label', None))) is not None:  # of a classifier
        boxes.append(np.array([[0, 0, *size]]))
        texts.append(', '.join(_name(names, label) for label in labels.reshape(-1)))
        colors.append(color_of(labels.reshape(-1)[0]) if labels.size else WHITE)
        masks.append(None)
    return draw(small, np.concatenate(boxes), texts, colors, masks)


def _name(names: Any, label: float) -> str:
    return str(names[int(label)]) if 0 <= int(label) < len(names) else f'class {int(label)}'


def _numbers(value: Any) -> np.ndarray | None:
    """Returns a tensor, or boxes around one, as an array."""
    value = getattr(value, 'tensor', value)
    return value.detach().float().cpu().numpy() if isinstance(value, Tensor) else None
