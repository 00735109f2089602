"""A contact sheet of the first training batches as the network receives them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from tokennorm.base.files import write_atomically
from tokennorm.checkpoints.safe_reading import common_meta
from tokennorm.datasets.contact_sheet import tile
from tokennorm.engine.distributed import unwrapped
from tokennorm.images.drawing import color_of, draw_resized
from tokennorm.registry import HOOKS

FILE = 'train_batches.jpg'
LONG_SIDE = 320  # pixels of a drawn image


@HOOKS.register_module()
class TrainBatchesHook(Hook):
    """Draws the first training images into the work directory, `train_batches.jpg`, with boxes, masks and classes.

    They are what the data preprocessor gives to the network: after augmentation, resizing and padding, with the
    normalization undone. Nothing is read or drawn at random for them. A resumed run keeps its first sheet.

    Args:
        num_images: Images on the sheet, from as many batches as needed, at most those of an epoch.
    """

    def __init__(self, num_images: int = 16) -> None:
        self.num_images = num_images
        self.tiles: list[np.ndarray] = []
        self._handle: Any = None  # of torch's hook

    def before_train(self, runner: Runner) -> None:
        """Collects what the data preprocessor gives to the network, in rank 0."""
        preprocessor, self.path = unwrapped(runner.model).data_preprocessor, Path(runner.work_dir) / FILE
        self.names = common_meta(getattr(runner.train_dataloader.dataset, 'metainfo', None)).get('classes') or ()
        if is_main_process() and isinstance(preprocessor, nn.Module) and not self.path.is_file():
            self._handle = preprocessor.register_forward_hook(self._collect)

    def after_train_epoch(self, runner: Runner) -> None:
        self._write()

    def _collect(self, preprocessor: nn.Module, _: Any, batch: Any) -> None:
        if preprocessor.training:
            self.tiles += draw_batch(preprocessor, batch, self.names)
        if len(self.tiles) >= self.num_images:
            self._write()

    def _write(self) -> None:
        """Writes the sheet, if there is anything to draw; no more is collected."""
        if self._handle is not None:
            self._handle.remove()
        if self.tiles:
            tiles = self.tiles[: self.num_images]
            sheet = tile(tiles, columns=min(4, len(tiles)))
            content = cv2.imencode('.jpg', sheet, [cv2.IMWRITE_JPEG_QUALITY, 85])[1]
            write_atomically(self.path, content.tobytes())
        self._handle, self.tiles = None, []


def draw_batch(preprocessor: nn.Module, batch: Any, names: Sequence[str] = ()) -> Iterator[np.ndarray]:
    """Draws the output of a data preprocessor: images (H, W, 3) uint8 BGR with boxes, masks and class names.

    A batch without one tensor of three channels, such as that of a semi-supervised detector, gives none.
    """
    inputs = batch.get('inputs') if isinstance(batch, Mapping) else None
    if isinstance(inputs, Tensor) and inputs.dim() == 4 and inputs.shape[1] == 3:
        samples = batch.get('data_samples') or [None] * len(inputs)
        for pixels, sample in zip(undo_normalization(preprocessor, inputs), samples, strict=True):
            yield _draw_sample(pixels, getattr(sample, 'gt_instances', None), names)


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


def _draw_sample(pixels: np.ndarray, objects: Any, names: Sequence[str]) -> np.ndarray:
    """Draws an image with the objects that it is trained on; rotated boxes and classes of whole images are left out."""
    boxes = getattr(objects, 'bboxes', None)
    boxes = getattr(boxes, 'tensor', boxes)  # of mmdet's box types
    if boxes is None or boxes.shape[1:] != (4,):
        return draw_resized(pixels, LONG_SIDE, np.zeros((0, 4)), (), ())
    labels = objects.labels.tolist()
    shown = [names[label] if len(names) > 1 and label < len(names) else '' for label in labels]
    masks = objects.masks.to_ndarray() if 'masks' in objects else [None] * len(labels)
    corners = boxes.detach().float().cpu().numpy()
    return draw_resized(pixels, LONG_SIDE, corners, shown, [color_of(label) for label in labels], masks)
